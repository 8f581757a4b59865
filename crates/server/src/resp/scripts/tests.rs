use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidelock_core::types::UnixMillis;

use super::super::encode::Protocol;
use super::*;

fn run_of(source: &str) -> ScriptRun {
    let commands = ScriptCommands {
        keys: Box::default(),
        permissions: None,
        is_readonly: false,
        now: UnixMillis(1_000),
        leader_ahead_ms: 0,
        protocol: Protocol::Resp2,
    };
    let (keys, arguments) = (Arc::from([]), Arc::from([]));
    let digest = ScriptDigest::of(source.as_bytes());
    ScriptRun { source: source.as_bytes().into(), digest, keys, arguments, commands }
}

/// The reply to a script, or the error that ended it.
fn outcome(engine: &mut Engine, source: &str) -> String {
    match engine.run(run_of(source)) {
        RunResult::Finished { reply, .. } => String::from_utf8(reply).expect("a text"),
        RunResult::Failed(text) | RunResult::NotCompiled(text) => text,
    }
}

fn engine() -> Engine {
    Engine::new().expect("memory for an interpreter")
}

#[test]
fn a_script_leaves_nothing_to_the_next_one() {
    let mut engine = engine();
    for source in [
        "string.find = nil; table.insert = 1; math.pi = 3; redis.call = nil; cjson.encode = nil",
        "_G.pairs = nil; rawset(_G, 'left', 1); rawset(redis, 'left', 1)",
        "rawset(cjson.null, 'left', 1)",
        "bit.left = 1; KEYS.left = 1; ARGV.left = 1",
        "getmetatable(_G).__index = nil",
        "getmetatable('').__index.left = 1",
        "setmetatable(_G, nil)",
    ] {
        outcome(&mut engine, source);
    }
    let check = "return {type(string.find), type(table.insert), math.pi > 3.1 and 'pi', type(redis.call), \
                 type(cjson.encode), type(pairs), type(rawget(_G, 'left')), type(rawget(redis, 'left')), \
                 type(bit.left), type(KEYS.left), type(('x').left)}";
    let words: Vec<String> = outcome(&mut engine, check)
        .split("\r\n")
        .filter(|line| !line.starts_with(['*', '$']) && !line.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    let expected = ["function", "function", "pi", "function", "function", "function"];
    assert_eq!(words[..6], expected);
    assert!(words[6..].iter().all(|word| word == "nil") && words.len() == 11, "{words:?}");
}

#[test]
fn a_limit_ends_a_script_whatever_it_does() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() end) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}); \
         while true do pcall(function() return t[1] end) end",
        "local t = {}; for i = 1, 1e5 do t[i] = i % 7 end; while true do table.sort(t) end",
        "local t = {}; for i = 1, 1e4 do t[i] = 'x' end; while true do local s = table.concat(t) end",
        "for i = 1, 1e9 do redis.pcall('get', 'undeclared') end",
        "for i = 1, 1e9 do redis.log(redis.LOG_DEBUG, 'a line') end",
    ] {
        let mut engine = engine();
        let text = outcome(&mut engine, source);
        assert!(text.starts_with("ERR the script ran too long"), "{source}: {text}");
        assert!(engine.must_be_replaced());
    }
}

#[test]
fn memory_is_limited_also_within_functions_of_the_libraries() {
    for source in [
        "local t = {}; for i = 1, 1e6 do t[i] = string.rep('x', 1e5) .. i end",
        "local s = 'x'; while true do s = s .. s end",
        "local t = {}; for i = 1, 100 do t[i] = string.rep('x', 1e6) end; return table.concat(t)",
        "return string.rep('x', 6e7):upper()",
        "return string.rep('x', 1e9)",
        "local t = {}; for i = 1, 1e8 do t[i] = i end",
        "local function f() return f(), f() end; return f()",
        "return unpack({}, 1, 1e7)",
    ] {
        let mut engine = engine();
        let text = outcome(&mut engine, source);
        assert!(text.starts_with("ERR "), "{source}: {text}");
        assert!(engine.memory_bytes() < 80 << 20, "{source}: {}", engine.memory_bytes());
    }
}

#[test]
fn an_interpreter_with_much_garbage_or_an_exceeded_limit_is_replaced() {
    let mut engine = engine();
    assert_eq!(outcome(&mut engine, "return 1"), ":1\r\n");
    assert!(!engine.must_be_replaced());
    outcome(&mut engine, "local t = {}; for i = 1, 100 do t[i] = string.rep('x', 1e5) .. i end");
    assert!(engine.must_be_replaced());
}

#[test]
fn scripts_beyond_the_queue_are_refused() {
    let scripts = Scripts::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Vec::new();
    let refused = loop {
        let mut run = Box::pin(scripts.run(run_of("while true do end")));
        match run.as_mut().poll(&mut context) {
            Poll::Pending => waiting.push(run),
            Poll::Ready(result) => break result.expect_err("refused"),
        }
        assert!(waiting.len() <= 2 * SCRIPTS_WAITING_MAX, "nothing is refused");
    };
    assert!(refused.starts_with("TRYAGAIN "), "{refused}");
    assert!(waiting.len() >= SCRIPTS_WAITING_MAX);
    // Those whose clients are gone are not run.
    drop(waiting);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let result = loop {
        let mut run = pin!(scripts.run(run_of("return 1")));
        if let Ok(result) = runtime.block_on(run.as_mut()) {
            break result;
        }
        thread::yield_now();
    };
    assert!(matches!(result, RunResult::Finished { reply, .. } if reply == b":1\r\n"));
}
