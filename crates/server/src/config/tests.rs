//! Settings: sources, precedence, validation.

use super::*;
use std::io::Write;

fn raw(toml: &str) -> RawSettings {
    toml::from_str(toml).unwrap()
}

fn settings(toml: &str) -> Settings {
    Settings::new(raw(toml)).unwrap()
}

fn error(toml: &str) -> String {
    Settings::new(raw(toml)).unwrap_err().to_string()
}

#[test]
fn defaults_are_those_of_the_documents() {
    let settings = settings("");
    assert_eq!(settings.data_dir, PathBuf::from("./tidelock-data"));
    assert_eq!(settings.listen.http.as_str(), "127.0.0.1:8001");
    assert_eq!(settings.listen.resp.as_str(), "127.0.0.1:7001");
    assert_eq!(settings.listen.resp_cluster.as_ref().map(Address::as_str), Some("127.0.0.1:7101"));
    assert_eq!(settings.listen.peer.as_str(), "127.0.0.1:9001");
    assert_eq!(settings.advertise, settings.listen);
    assert_eq!((settings.shards, settings.replicas, settings.sync), (1, 3, true));
    assert_eq!(settings.tick(), Duration::from_millis(50));
    let expected = Timing {
        tick_ms: 50,
        election_ticks: 20,
        heartbeat_ticks: 2,
        request_ticks: 50,
        dead_ticks: 6_000,
        balance_ticks: 1_200,
        slow_request_ticks: 20,
        access_stale_ticks: 6_000,
        founding_ticks: 60,
    };
    assert_eq!(settings.timing(), expected);
    assert_eq!((settings.log_format, settings.log_filter.as_str()), (LogFormat::Text, "info"));
    assert!(settings.tags.is_empty() && settings.exposed().is_empty());
    assert_eq!(
        (settings.founders(), settings.founder_number().unwrap()),
        (vec!["127.0.0.1:9001".to_owned()], NodeId(1))
    );
    assert_eq!(settings.cluster_id(), None);
}

const EVERY_SETTING: &str = r#"
    data_dir = "/var/lib/tidelock"
    http = "0.0.0.0:80"
    resp = "[::1]:6379"
    resp_cluster = "[::1]:6380"
    peer = "b:1"
    allowed_hosts = ["kv.example., b ,lb", "kv.example"]
    peers = ["a:1", "b:1"]
    cluster_name = "blue"
    shards = 512
    tags = ["geo:zone=us-west-1a", "empty="]
    sync = false
    election_timeout_ms = 300
    request_timeout_ms = 1001
    workers = 3
    memory_limit = "512MiB"
    log_format = "json"
    log_filter = "tidelock=debug"
"#;

#[test]
fn every_setting_of_a_file_counts() {
    let settings = settings(EVERY_SETTING);
    assert_eq!(settings.data_dir, PathBuf::from("/var/lib/tidelock"));
    assert_eq!((settings.listen.http.as_str(), settings.listen.resp.as_str()), ("0.0.0.0:80", "[::1]:6379"));
    assert_eq!(
        (settings.founders(), settings.founder_number().unwrap()),
        (vec!["a:1".to_owned(), "b:1".to_owned()], NodeId(2))
    );
    assert_eq!(settings.allowed_hosts, ["kv.example", "b", "lb"]);
    let hosts: Vec<String> = settings.http_hosts().collect();
    assert_eq!(hosts, ["0.0.0.0", "[::1]", "b", "kv.example", "lb"]);
    assert_eq!(
        settings.cluster_id(),
        Some(cluster_id(
            &["a:1", "b:1"],
            "blue",
            &FoundingTerms { data_shards: Some(512), replicas: 3, shard_tags: &BTreeMap::new() }
        ))
    );
    assert_eq!((settings.shards, settings.sync), (512, false));
    let tags: Vec<_> = settings.tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(tags, [("empty", ""), ("geo:zone", "us-west-1a")]);
    assert_eq!(settings.tick(), Duration::from_millis(15));
    assert_eq!((settings.timing().request_ticks, settings.workers), (67, 3));
    assert_eq!(settings.memory_limit, 512 << 20);
    assert_eq!((settings.log_format, settings.log_filter.as_str()), (LogFormat::Json, "tidelock=debug"));
    assert_eq!(settings.exposed(), [("http", "0.0.0.0:80"), ("peer", "b:1")]);
}

#[test]
fn other_machines_reach_a_node_with_tls_only_unless_the_operator_says_so() {
    for (toml, clue) in [
        ("secure = true\ntls_dir = 'tls'", "leave tls_dir out"),
        ("secure = true\npeers = ['a:1']", "leave peers out"),
        ("secure = true\ninsecure = true", "leave insecure out"),
        ("join_token_file = 'f'", "join is missing"),
        ("join_token_file = 'f'\ntls_dir = 'tls'", "leave tls_dir out"),
    ] {
        let refusal = Settings::new(toml::from_str(toml).unwrap()).unwrap_err().to_string();
        assert!(refusal.contains(clue), "{refusal}");
    }
    for toml in ["", "tls_dir = 'tls'\nhttp = '10.0.0.1:80'", "insecure = true\nhttp = '10.0.0.1:80'"] {
        assert!(settings(toml).check_exposure().is_ok(), "{toml}");
    }
    for (toml, clue) in [
        ("http = '10.0.0.1:80'", "http: other machines can reach 10.0.0.1:80"),
        ("insecure = false\nresp = '[::]:7001'", "resp: other machines can reach [::]:7001"),
        ("resp_cluster = 'a:1'", "resp_cluster: other machines can reach a:1"),
        ("peer = 'a:1'", "peer: other machines can reach a:1"),
        ("listen_http = '0.0.0.0:1'\nadvertise_http = 'kv-1'", "tidelock tls init --hosts kv-1 "),
        ("http = '10.0.0.1:80'", "tidelock serve --tls-dir tidelock-tls/10.0.0.1`"),
        ("http = '10.0.0.1:80'", "give --insecure instead"),
    ] {
        let refusal = settings(toml).check_exposure().unwrap_err().to_string();
        assert!(refusal.contains(clue), "{refusal}");
    }
}

#[test]
fn the_port_for_redis_cluster_is_beside_that_of_redis() {
    let of = |toml: &str| settings(toml).listen.resp_cluster.map(|address| address.to_string());
    assert_eq!(of(r#"resp = "[::]:6379""#).as_deref(), Some("[::]:6479"));
    assert_eq!(of(r#"resp = "a:0""#).as_deref(), Some("a:0"));
    assert_eq!(of(r#"resp_cluster = "b:1""#).as_deref(), Some("b:1"));
    assert_eq!(of(r#"resp_cluster = "off""#), None);
    assert!(error(r#"resp = "a:65500""#).contains("resp_cluster"));
    assert!(error(r#"resp_cluster = "127.0.0.1:8001""#).contains("http and resp_cluster"));
    assert!(error(r#"resp_cluster = "nowhere""#).contains("resp_cluster"));
}

#[test]
fn where_a_node_listens_and_what_it_advertises_may_differ() {
    let of = |toml: &str| {
        let ListenerAddresses { http, resp, resp_cluster, peer } = settings(toml).advertise;
        let resp_cluster = resp_cluster.map_or_else(|| RESP_CLUSTER_OFF.to_owned(), |it| it.to_string());
        format!("{http} {resp} {resp_cluster} {peer}")
    };
    let everywhere = "http = '0.0.0.0:80'\nresp = '[::]:7001'\nlisten_peer = '0.0.0.0:9001'\n";
    for (toml, advertised) in [
        // The host of a clients' listener that listens everywhere is that of the peer address.
        ("advertise_peer = 'kv-1'", "kv-1:80 kv-1:7001 kv-1:7101 kv-1:9001"),
        ("advertise_peer = 'kv-1:19001'", "kv-1:80 kv-1:7001 kv-1:7101 kv-1:19001"),
        ("peer = '10.0.0.1:1'", "10.0.0.1:80 10.0.0.1:7001 10.0.0.1:7101 10.0.0.1:1"),
        ("advertise_peer = 'fd00::1'", "[fd00::1]:80 [fd00::1]:7001 [fd00::1]:7101 [fd00::1]:9001"),
        (
            "advertise_peer = '[fd00::1]'\nadvertise_http = '[fd00::2]:8'",
            "[fd00::2]:8 [fd00::1]:7001 [fd00::1]:7101 [fd00::1]:9001",
        ),
        ("advertise_peer = 'a'\nadvertise_resp = 'b:6379'", "a:80 b:6379 b:7101 a:9001"),
        ("advertise_peer = 'a'\nadvertise_resp_cluster = 'c:6380'", "a:80 a:7001 c:6380 a:9001"),
        ("advertise_peer = 'a'\nresp_cluster = 'off'", "a:80 a:7001 off a:9001"),
        ("advertise_peer = 'a'\nresp_cluster = 'd:1'", "a:80 a:7001 d:1 a:9001"),
        ("advertise_peer = 'a'\nresp_cluster = '0.0.0.0:1'", "a:80 a:7001 a:1 a:9001"),
    ] {
        assert_eq!(of(&format!("{everywhere}{toml}")), advertised, "{toml}");
    }
    let settings = settings("peer = 'kv-1:9001'\nlisten_peer = '10.0.0.9:1'\nlisten_http = '10.0.0.9:2'");
    assert_eq!(settings.listen.peer.as_str(), "10.0.0.9:1");
    assert_eq!(settings.advertise.peer.as_str(), "kv-1:9001");
    assert_eq!(settings.advertise.http.as_str(), "10.0.0.9:2");
    assert_eq!(settings.http_hosts().collect::<Vec<_>>(), ["10.0.0.9", "127.0.0.1", "kv-1"]);
    for (toml, advice) in [
        ("peer = '0.0.0.0:9001'", "peer: 0.0.0.0:9001 means every address of this machine"),
        ("listen_peer = '[::]:9001'", "give advertise_peer too"),
        ("advertise_peer = '0.0.0.0'", "advertise_peer: `0.0.0.0` does not say where others reach this node"),
        ("advertise_http = '[::]:1'", "advertise_http: `[::]:1` does not say where"),
        ("advertise_http = 'two words'", "advertise_http: `two words` does not say where"),
        ("advertise_http = 'a:99999'", "advertise_http: `a:99999` does not say where"),
        ("advertise_http = ''", "advertise_http: `` does not say where"),
        ("listen_http = 'a'", "listen_http: `a` is not an address"),
        ("listen_http = '127.0.0.1:9001'", "http and peer are both 127.0.0.1:9001"),
    ] {
        let error = error(toml);
        assert!(error.contains(advice), "{toml} said: {error}");
    }
}

#[test]
fn founders_and_members_may_be_named_by_srv_records() {
    let founder = settings("peers = ['srv:_tidelock-peer._tcp.example.org/3']\npeer = 'kv-1:9001'");
    let service = founder.srv_founders().expect("a name");
    assert_eq!((service.name.as_str(), service.count), ("_tidelock-peer._tcp.example.org", 3));
    assert_eq!((founder.cluster_id(), founder.given_founders()), (None, None));
    assert_eq!(founder.fallbacks(), ["srv:_tidelock-peer._tcp.example.org"]);
    let joining = settings("join = ['srv:_p._tcp.a', 'b:1']");
    assert_eq!(joining.join(), ["srv:_p._tcp.a", "b:1"]);
    assert_eq!(joining.fallbacks(), joining.join());
    assert_eq!(settings("peers = ['127.0.0.1:9001', 'b:1']").fallbacks(), ["127.0.0.1:9001", "b:1"]);
    for (toml, advice) in [
        ("peers = ['srv:_p._tcp.a']", "write srv:NAME/COUNT"),
        ("peers = ['srv:_p._tcp.a/10']", "write srv:NAME/COUNT"),
        ("peers = ['srv:_p._tcp.a/0']", "write srv:NAME/COUNT"),
        ("peers = ['srv:/3']", "write srv:NAME/COUNT"),
        ("peers = ['a:1', 'srv:_p._tcp.a/3']", "and nothing else"),
        ("peers = ['srv:_p._tcp.a/3']\njoin = ['a:1']", "join: peers is given too"),
        ("join = ['srv:']", "join: `srv:` is not an SRV name"),
        ("join = ['srv:_p._tcp.a/3']", "is not an SRV name; write srv:NAME"),
    ] {
        let error = error(toml);
        assert!(error.contains(advice), "{toml} said: {error}");
    }
}

#[test]
fn workers_follow_the_cores() {
    let workers: Vec<usize> = [0, 1, 2, 3, 4, 7, 64].map(workers_of_cores).into();
    assert_eq!(workers, [1, 1, 1, 2, 3, 6, 6]);
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(settings("").workers, workers_of_cores(cores));
    for workers in ["0", "65"] {
        let error = error(&format!("workers = {workers}"));
        assert_eq!(error, format!("workers: {workers} is out of range; write a number from 1 to 64"));
    }
}

#[test]
fn the_memory_limit_has_units() {
    for (text, bytes) in
        [("67108864", 64_usize << 20), ("65536KiB", 64 << 20), ("2 GiB", 2 << 30), ("1tib", 1 << 40)]
    {
        assert_eq!(settings(&format!("memory_limit = \"{text}\"")).memory_limit, bytes, "{text}");
    }
    for text in ["", "63MiB", "512M", "1.5GiB", "-1", "MiB", "99999999999999TiB"] {
        let expected =
            format!("memory_limit: `{text}` is not a limit; write at least 64MiB, such as 512MiB or 2GiB");
        assert_eq!(error(&format!("memory_limit = \"{text}\"")), expected);
    }
    assert!(settings("").memory_limit >= 64 << 20);
}

#[test]
fn what_is_given_overrules_the_file_setting_by_setting() {
    let file = raw(EVERY_SETTING);
    let given = RawSettings { shards: Some(9), tags: Some(vec![]), ..RawSettings::default() };
    assert_eq!(given.or(file.clone()), RawSettings { shards: Some(9), tags: Some(vec![]), ..file });
}

#[test]
fn a_file_is_completed_by_flags_and_defaults() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"shards = 7\nsync = false\n").unwrap();
    let given = RawSettings { sync: Some(true), ..RawSettings::default() };
    let settings = Settings::load(given, Some(file.path())).unwrap();
    assert_eq!((settings.shards, settings.sync), (7, true));
    assert_eq!(settings.listen.http.as_str(), DEFAULT_HTTP);
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let error = Settings::load(RawSettings::default(), Some(Path::new("/nowhere/t.toml"))).unwrap_err();
    assert!(matches!(&error, ConfigError::Read { .. }) && error.to_string().contains("/nowhere/t.toml"));
    for (text, clue) in [
        ("shard = 7", "unknown field `shard`"),
        ("shards = \"7\"", "invalid type"),
        ("shards = -1", "shards"),
        ("shards = ", "shards"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let error = Settings::load(RawSettings::default(), Some(file.path())).unwrap_err();
        assert!(matches!(&error, ConfigError::Parse { .. }));
        let message = error.to_string();
        assert!(message.contains(clue) && message.contains(file.path().to_str().unwrap()), "{message}");
    }
}

#[test]
fn every_invalid_value_is_refused_with_advice() {
    for (toml, advice) in [
        ("http = '8001'", "http: `8001` is not an address; write HOST:PORT"),
        ("http = 'http://localhost:8001'", "write HOST:PORT"),
        ("http = ':8001'", "write HOST:PORT"),
        ("http = 'localhost:'", "write HOST:PORT"),
        ("http = 'localhost:65536'", "write HOST:PORT"),
        ("http = 'localhost:+1'", "write HOST:PORT"),
        ("http = '::1:8001'", "write HOST:PORT"),
        ("http = '[::1:8001'", "write HOST:PORT"),
        ("http = '[localhost]:8001'", "write HOST:PORT"),
        ("resp = 'two words:1'", "resp: "),
        ("peer = ''", "peer: "),
        ("http = '127.0.0.1:9001'", "http and peer are both 127.0.0.1:9001"),
        ("peers = []", "0 founders; list 1 to 9"),
        ("peers = ['']", "peers: `` is not an address"),
        ("peers = ['a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1']", "10 founders; list 1 to 9"),
        ("peers = ['127.0.0.1:9001', '127.0.0.1:0']", "127.0.0.1:0 has no fixed port"),
        ("peers = ['127.0.0.1:9001', ' 127.0.0.1:9001']", "127.0.0.1:9001 is listed more than once"),
        ("peers = ['127.0.0.1:9001']\njoin = ['a:1']", "join: peers is given too"),
        ("join = []", "join: 0 addresses; list the peer addresses of 1 to 16"),
        ("join = ['']", "join: `` is not an address"),
        ("join = ['127.0.0.1:9001']", "127.0.0.1:9001 is this node's own peer address"),
        ("join = ['a:1']\npeer = 'b:0'", "peer: b:0 does not say where this node is"),
        ("allowed_hosts = ['']", "allowed_hosts: `` is not the name of a host"),
        ("allowed_hosts = ['a:1']", "allowed_hosts: `a:1` is not the name"),
        ("allowed_hosts = ['http://a']", "write names without scheme and port"),
        ("allowed_hosts = ['*']", "allowed_hosts: `*`"),
        ("cluster_name = ''", "cluster_name: "),
        ("cluster_name = 'a\\b'", "cluster_name: "),
        ("shards = 0", "shards: 0 is out of range; write a number from 1 to 512"),
        ("shards = 513", "from 1 to 512"),
        ("replicas = 0", "replicas: 0 voters a shard; write 1, 3, 5 or 7"),
        ("replicas = 4", "An even number survives no more failures"),
        ("replicas = 9", "write 1, 3, 5 or 7"),
        ("shard_tags = ['placement:members=3']", "`placement:members` is no policy"),
        ("shard_tags = ['placement:member=many']", "must begin with a number"),
        ("shard_tags = ['placment:member=3']", "looks like a policy that is misspelt"),
        ("shard_tags = ['zone']", "shard_tags: `zone` is not a tag; write K=V"),
        ("shard_tags = ['k=1', 'k=2']", "shard_tags: `k` is given more than once"),
        ("tags = ['zone']", "tags: `zone` is not a tag; write K=V"),
        ("tags = ['=v']", "write K=V"),
        ("tags = ['k=1', 'k=2']", "`k` is given more than once"),
        ("election_timeout_ms = 99", "from 100 to 60000"),
        ("election_timeout_ms = 60001", "from 100 to 60000"),
        ("request_timeout_ms = 99", "from 100 to 60000"),
        ("request_timeout_ms = 60001", "from 100 to 60000"),
        ("auth_stale_s = 9", "from 10 to 86400"),
        ("auth_stale_s = 86401", "from 10 to 86400"),
        ("slow_request_ms = 0", "from 1 to 60000"),
        ("slow_request_ms = 60001", "from 1 to 60000"),
        ("log_format = 'xml'", "write text or json"),
        ("log_filter = ' '", "write a level"),
        ("data_dir = ''", "write a directory"),
    ] {
        let message = error(toml);
        assert!(message.contains(advice), "{toml} said: {message}");
    }
}

#[test]
fn only_a_listed_node_can_found_a_cluster() {
    for (toml, advice) in [
        ("peers = ['b:1', 'a:1']", "own peer address 127.0.0.1:9001 is not among the founders (a:1, b:1)"),
        ("peers = ['localhost:9001']", "spelt the same"),
    ] {
        let message = settings(toml).founder_number().unwrap_err().to_string();
        assert!(message.contains(advice), "{toml} said: {message}");
    }
}

#[test]
fn what_was_given_is_told_from_defaults() {
    let silent = settings("");
    assert_eq!((silent.given_founders(), silent.given_shards(), silent.cluster_name()), (None, None, None));
    assert_eq!(silent.founding_name(), DEFAULT_CLUSTER_NAME);
    let stated = settings("peers = ['127.0.0.1:9001']\nshards = 4\ncluster_name = 'tidelock'");
    assert_eq!(stated.given_founders(), Some(vec!["127.0.0.1:9001".to_owned()]));
    assert_eq!((stated.given_shards(), stated.cluster_name()), (Some(4), Some(DEFAULT_CLUSTER_NAME)));
}

#[test]
fn lengths_are_bounded_on_both_sides() {
    let name = "n".repeat(CLUSTER_NAME_BYTES_MAX);
    settings(&format!("cluster_name = '{name}'"));
    assert!(error(&format!("cluster_name = '{name}n'")).contains("cluster_name"));
    let tag = format!("k={}", "v".repeat(TAG_BYTES_MAX - 2));
    settings(&format!("tags = ['{tag}']"));
    assert!(error(&format!("tags = ['{tag}v']")).contains("256"));
    let host = "h".repeat(HOST_BYTES_MAX);
    settings(&format!("http = '{host}:1'"));
    assert!(error(&format!("http = '{host}h:1'")).contains("is not an address"));
    let members = |count: usize| {
        format!("join = [{}]", (0..count).map(|number| format!("'h{number}:1',")).collect::<String>())
    };
    assert_eq!(settings(&members(JOIN_ADDRESSES_MAX)).join().len(), JOIN_ADDRESSES_MAX);
    assert!(error(&members(JOIN_ADDRESSES_MAX + 1)).contains("17 addresses"));
    let hosts = |count: usize| {
        format!("allowed_hosts = [{}]", (0..count).map(|number| format!("'h{number}',")).collect::<String>())
    };
    assert_eq!(settings(&hosts(ALLOWED_HOSTS_MAX)).allowed_hosts.len(), ALLOWED_HOSTS_MAX);
    assert!(error(&hosts(ALLOWED_HOSTS_MAX + 1)).contains("65 are too many"));
    let tags =
        |count: usize| format!("tags = [{}]", (0..count).map(|n| format!("'{n}=v',")).collect::<String>());
    assert_eq!(settings(&tags(TAGS_MAX)).tags.len(), TAGS_MAX);
    assert!(error(&tags(TAGS_MAX + 1)).contains("65 are too many"));
}

#[test]
fn a_newcomer_asks_those_that_it_was_given_but_itself() {
    let newcomer = settings("join = ['b:1,a:1', ' b:1', 'c:1']\npeer = 'c:1'\ncluster_name = ' blue '");
    assert_eq!(newcomer.join(), ["b:1", "a:1"]);
    assert_eq!(newcomer.cluster_name(), Some("blue"));
    assert_eq!(newcomer.cluster_id(), None);
    assert!(settings("").join().is_empty() && settings("").cluster_name().is_none());
}

#[test]
fn founders_agree_however_they_list_themselves() {
    let lists = ["['a:1', 'b:1', 'c:1']", "['c:1,a:1', 'b:1']", "[' b:1 , c:1,a:1 ']"];
    let of = |list: &str, peer: &str| settings(&format!("peers = {list}\npeer = '{peer}'"));
    for list in lists {
        for (peer, number) in [("a:1", 1), ("b:1", 2), ("c:1", 3)] {
            let settings = of(list, peer);
            assert_eq!(settings.founders(), ["a:1", "b:1", "c:1"]);
            assert_eq!(settings.founder_number().unwrap(), NodeId(number));
            assert_eq!(settings.cluster_id(), of(lists[0], "a:1").cluster_id());
        }
    }
}

#[test]
fn cluster_ids_differ_with_name_founders_and_terms_and_never_change() {
    let none = BTreeMap::new();
    let terms = |shards, replicas| FoundingTerms { data_shards: Some(shards), replicas, shard_tags: &none };
    let id = cluster_id(&["a:1", "b:1"], "tidelock", &terms(4, 3));
    assert_ne!(id, cluster_id(&["a:1", "b:1"], "other", &terms(4, 3)));
    assert_ne!(id, cluster_id(&["a:1", "b:1"], "tidelock", &terms(5, 3)));
    assert_ne!(id, cluster_id(&["a:1", "b:1"], "tidelock", &terms(4, 5)));
    assert_ne!(id, cluster_id(&["a:1"], "tidelock", &terms(4, 3)));
    assert_ne!(cluster_id(&["a:1b:1"], "t", &terms(4, 3)), cluster_id(&["a:1", "b:1"], "t", &terms(4, 3)));
    let tags = BTreeMap::from([("owner".to_owned(), "us".to_owned())]);
    let tagged = FoundingTerms { shard_tags: &tags, ..terms(4, 3) };
    assert_ne!(id, cluster_id(&["a:1", "b:1"], "tidelock", &tagged));
    let automatic = FoundingTerms { data_shards: None, ..terms(4, 3) };
    assert_ne!(id, cluster_id(&["a:1", "b:1"], "tidelock", &automatic));
    // The value that Python's uuid.uuid5 computes.
    assert_eq!(id.to_string(), "478cbbd8-b32d-51d7-86db-262e1e07a275");
}

#[test]
fn loopback_is_told_from_the_world() {
    let is_loopback = |text| Address::parse("http", text).unwrap().is_loopback();
    for text in
        ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "LocalHost:1"]
    {
        assert!(is_loopback(text), "{text}");
    }
    for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "localhost.example.org:1"] {
        assert!(!is_loopback(text), "{text}");
    }
}

#[test]
fn port_zero_is_a_choice_for_all_protocols_at_once() {
    let settings = settings("http = '127.0.0.1:0'\nresp = '127.0.0.1:0'\npeer = '127.0.0.1:0'");
    assert!(settings.listen.http.has_any_port() && settings.listen.peer.has_any_port());
}
