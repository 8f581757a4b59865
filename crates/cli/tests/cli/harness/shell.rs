//! Client commands, as a user and as a script run them.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{Cluster, tidelock};

/// Commands against one cluster.
pub struct Shell {
    urls: String,
}

impl Shell {
    /// Commands that know all nodes.
    pub fn of(cluster: &Cluster) -> Shell {
        Shell::by_way_of(cluster, &cluster.numbers())
    }

    /// Commands that know some nodes.
    pub fn by_way_of(cluster: &Cluster, numbers: &[usize]) -> Shell {
        let urls: Vec<String> = numbers.iter().map(|&number| cluster.url(number, "")).collect();
        Shell { urls: urls.join(",") }
    }

    /// A command, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidelock();
        command.args(arguments).env("TIDELOCK_URL", &self.urls);
        command
    }

    /// The output of a command.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().expect("the binary starts")
    }

    /// Standard output of a command that must succeed.
    pub fn done(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// The JSON that a command prints, which must succeed.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.done(&[arguments, &["--output", "json"]].concat());
        serde_json::from_slice(&output)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output)))
    }

    /// Standard error of a command that must fail, though it is well formed.
    pub fn failed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(matches!(output.status.code(), Some(1..=8)), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "a failure prints nothing on standard output");
        String::from_utf8(output.stderr).expect("messages are text")
    }
}
