//! A process that ends with the test that started it, also if the test fails.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output};
use std::thread;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use super::DEADLINE;
use super::reports::{Reports, reports};

/// A running process; killed when dropped.
pub struct Process(Option<Child>);

impl Process {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Process {
        Process(Some(command.spawn().expect("it starts")))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self), signal).expect("it runs");
    }

    /// Kills the process and waits for its end.
    pub fn end(mut self) {
        self.kill().expect("it runs");
        self.wait().expect("it ends");
    }

    /// Waits for the end of the process, and returns what its pipes said.
    pub fn output(mut self) -> Output {
        self.0.take().expect("a child").wait_with_output().expect("it ends")
    }

    /// The lines of its standard output, which must be a pipe.
    pub fn lines(&mut self) -> Lines {
        let (reporter, lines) = reports();
        let output = BufReader::new(self.stdout.take().expect("a pipe"));
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if reporter.send(line).is_err() {
                    return;
                }
            }
        });
        Lines(lines)
    }

    /// How it ended, if it has, and what can be read of its standard error now.
    fn report(&mut self) -> String {
        let mut report = format!("process {}: {:?}", self.id(), self.try_wait());
        let Some(mut errors) = self.stderr.take() else { return report };
        // Its own children may keep the pipe open.
        fcntl_setfl(&errors, OFlags::NONBLOCK).expect("a pipe");
        let mut said = vec![];
        let _ = errors.read_to_end(&mut said);
        write!(report, "\n{}", String::from_utf8_lossy(&said)).expect("memory");
        report
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("a child")
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("a child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.0.is_none() {
            return;
        }
        if thread::panicking() {
            eprintln!("--- {}", self.report());
        }
        // It may have ended by itself.
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// The lines that a process prints.
pub struct Lines(Reports<String>);

impl Lines {
    /// The next line; panics if none comes within [`DEADLINE`].
    pub fn next_line(&self) -> String {
        self.0.recv_timeout(DEADLINE).expect("a line")
    }
}
