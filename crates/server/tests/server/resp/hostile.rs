//! Malicious and slow clients: the server stays up, others are served, and memory is bounded.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidelock_server::memory::{CONNECTION_BYTES, LIMIT_BYTES_MIN, Memory};
use tidelock_server::resp::RespOptions;

use super::client::{Client, command};
use super::harness::Server;

fn assert_serves(server: &Server) {
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(&[b"SET", b"other", b"1"]), b"+OK\r\n");
    assert_eq!(client.ask(&[b"GET", b"other"]), b"$1\r\n1\r\n");
}

#[test]
fn a_hundred_thousand_commands_in_one_write_are_answered_in_order() {
    let server = Server::start(RespOptions::default());
    let mut client = Client::connect(server.address);
    let mut writer = Vec::new();
    for number in 0..100_000u32 {
        writer.extend_from_slice(&command(&[b"INCR", format!("n{}", number % 7).as_bytes()]));
    }
    let sending = {
        let mut stream = Client::connect(server.address);
        assert_serves(&server);
        std::mem::swap(&mut stream, &mut client);
        thread::spawn(move || {
            stream.send(&writer).unwrap();
            for number in 0..100_000u32 {
                assert_eq!(stream.reply(), format!(":{}\r\n", number / 7 + 1).as_bytes());
            }
        })
    };
    sending.join().unwrap();
    assert!(server.store.state().commands < 10_000, "bursts are few commands");
}

#[test]
fn a_length_that_nobody_means_ends_the_connection_and_costs_nothing() {
    let server = Server::start(RespOptions::default());
    for bytes in [
        &b"*1\r\n$1000000000\r\n"[..],
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8388608\r\n",
        b"*2147483647\r\n",
        b"*1\r\n$99999999999999999999\r\n",
    ] {
        let mut client = Client::connect(server.address);
        client.send(bytes).unwrap();
        assert!(client.reply().starts_with(b"-ERR Protocol error: "));
        assert!(client.is_closed());
    }
    assert_serves(&server);
}

#[test]
fn a_client_that_never_reads_is_not_read_from_and_others_are_served() {
    let server = Server::start(RespOptions::default());
    let mut setup = Client::connect(server.address);
    let value = vec![b'v'; 1 << 20];
    assert_eq!(setup.ask(&[b"SET", b"large", &value]), b"+OK\r\n");
    let mut greedy = Client::connect(server.address);
    let gets = command(&[b"GET", b"large"]).repeat(10_000);
    let mut sent = 0;
    // Once all buffers are full the server reads no more; each requested reply is 1 MiB, which the
    // client does not read.
    let mut idle_rounds = 0;
    while idle_rounds < 50 {
        let taken = greedy.try_send(&gets[..]).unwrap();
        sent += taken;
        idle_rounds = if taken == 0 { idle_rounds + 1 } else { 0 };
        assert_serves(&server);
    }
    assert!(sent < gets.len() * 1_000, "it stopped taking commands");
    let asked = server.store.state().commands;
    assert_serves(&server);
    let for_others = 2;
    assert!(
        server.store.state().commands <= asked + for_others,
        "nothing is asked for a client that does not read"
    );
}

#[test]
fn a_client_that_takes_nothing_for_long_is_cut() {
    let options = RespOptions { stall_timeout: Duration::from_millis(50), ..RespOptions::default() };
    let server = Server::start(options);
    let mut setup = Client::connect(server.address);
    assert_eq!(setup.ask(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), b"+OK\r\n");
    let mut greedy = Client::connect(server.address);
    let get = command(&[b"GET", b"large"]);
    // Sending fails once the connection is cut.
    while greedy.send(&get.repeat(1_000)).is_ok() {}
    assert_serves(&server);
}

#[test]
fn bytes_that_come_one_at_a_time_are_a_command_in_the_end() {
    let server = Server::start(RespOptions::default());
    let mut slow = Client::connect(server.address);
    for byte in command(&[b"SET", b"key", b"value"]) {
        slow.send(&[byte]).unwrap();
        assert_serves(&server);
    }
    assert_eq!(slow.reply(), b"+OK\r\n");
}

#[test]
fn what_is_left_of_a_command_when_the_client_goes_is_forgotten() {
    let server = Server::start(RespOptions::default());
    let mut client = Client::connect(server.address);
    client.send(b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET").unwrap();
    client.stop_sending();
    assert_eq!(client.reply(), b"+PONG\r\n");
    assert!(client.is_closed());
}

#[test]
fn parts_of_commands_of_all_clients_together_are_bounded() {
    let server = Server::start_within(RespOptions::default(), Memory::new(LIMIT_BYTES_MIN));
    let mut part = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\n".to_vec();
    part.extend_from_slice(&vec![b'x'; 900_000]);
    let (told, replies) = mpsc::channel();
    for _ in 0..70 {
        let (mut client, part, told) = (Client::connect(server.address), part.clone(), told.clone());
        // There is room for any fifty. The others get an error, perhaps before they have sent
        // everything.
        thread::spawn(move || {
            drop(client.send(&part));
            told.send(client.reply())
        });
    }
    drop(told);
    assert!(replies.iter().any(|reply| reply.starts_with(b"-TRYAGAIN ")));
    assert!(server.memory.used() <= server.memory.limit());
    assert_serves(&server);
}

#[test]
fn replies_that_nobody_reads_are_bounded_and_others_are_served() {
    let server = Server::start_within(RespOptions::default(), Memory::new(LIMIT_BYTES_MIN));
    let mut setup = Client::connect(server.address);
    assert_eq!(setup.ask(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), b"+OK\r\n");
    let gets = command(&[b"GET", b"large"]).repeat(100);
    let greedy: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = Client::connect(server.address);
            client.send(&gets).unwrap();
            client
        })
        .collect();
    // They request 4,000 MiB of replies. Eventually there is no memory for one more value.
    let several: [&[u8]; 5] = [b"MGET", b"large", b"large", b"large", b"large"];
    while !setup.ask(&several).starts_with(b"-TRYAGAIN ") {}
    let ceiling = server.memory.limit() / 4 * 3;
    assert!(server.memory.used() > ceiling / 2 && server.memory.used() <= ceiling + (1 << 20));
    for _ in 0..100 {
        assert_serves(&server);
    }
    let mixed = [command(&[b"SET", b"other", b"2"]), command(&[b"GET", b"other"])].concat();
    setup.send(&mixed.repeat(100)).unwrap();
    for _ in 0..100 {
        assert_eq!((setup.reply(), setup.reply()), (b"+OK\r\n".to_vec(), b"$1\r\n2\r\n".to_vec()));
    }
    drop(greedy);
    while server.memory.used() > CONNECTION_BYTES {
        thread::yield_now();
    }
    assert_eq!(setup.ask(&[b"GET", b"large"]).len(), (1 << 20) + b"$1048576\r\n\r\n".len());
}

#[test]
fn one_reply_of_many_values_is_bounded() {
    let server = Server::start_within(RespOptions::default(), Memory::new(LIMIT_BYTES_MIN));
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(&[b"SET", b"large", &vec![b'v'; 1 << 20]]), b"+OK\r\n");
    let mget = |count| {
        [&b"MGET"[..]].into_iter().chain(std::iter::repeat_n(&b"large"[..], count)).collect::<Vec<_>>()
    };
    assert!(client.ask(&mget(6)).starts_with(b"*6\r\n$1048576\r\n"));
    assert!(client.ask(&mget(1_000)).starts_with(b"-TRYAGAIN "));
    assert_serves(&server);
}

#[test]
fn the_connection_above_the_limit_is_told_so() {
    let server = Server::start(RespOptions { connections_max: 1, ..RespOptions::default() });
    let mut first = Client::connect(server.address);
    assert_eq!(first.ask(&[b"PING"]), b"+PONG\r\n");
    let mut second = Client::connect(server.address);
    assert_eq!(second.reply(), b"-ERR max number of clients reached\r\n");
    assert!(second.is_closed());
}

#[test]
fn what_was_taken_is_answered_before_the_server_stops() {
    let mut server = Server::start(RespOptions::default());
    let mut client = Client::connect(server.address);
    assert_eq!(client.ask(&[b"PING"]), b"+PONG\r\n");
    server.stop();
    assert!(client.is_closed());
}
