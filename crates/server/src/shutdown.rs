//! SIGTERM and SIGINT: the first asks the node to stop, the second ends the process at once.
//!
//! Owns the signals, not the steps of stopping. A separate thread handles them: the second signal
//! is sent when a node does not stop, and a hanging event loop could not handle it.

use std::fmt;
use std::io;
use std::sync::mpsc;

use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::watch;

/// A signal that asks to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, which service managers send.
    Terminate,
    /// SIGINT, which a terminal sends at Ctrl-C.
    Interrupt,
}

impl Signal {
    /// The exit status that a shell reports for a process killed by the signal: 128 plus its
    /// number.
    pub fn exit_code(self) -> i32 {
        match self {
            Signal::Terminate => 143,
            Signal::Interrupt => 130,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Terminate => "SIGTERM",
            Signal::Interrupt => "SIGINT",
        })
    }
}

/// Takes over the signals for the rest of the process's life. The receiver changes from `None` to
/// the first signal; the second one exits the process with its [`exit_code`](Signal::exit_code).
/// Call it once, before anything starts that must be stopped.
///
/// # Errors
/// When the thread or the handlers cannot be set up.
pub fn listen() -> io::Result<watch::Receiver<Option<Signal>>> {
    let (sender, receiver) = watch::channel(None);
    let (ready, is_ready) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let outcome = tokio::runtime::Builder::new_current_thread().enable_io().build().and_then(|runtime| {
            let signals = runtime.block_on(async { Signals::install() })?;
            Ok((runtime, signals))
        });
        match outcome {
            Ok((runtime, signals)) => {
                ready.send(Ok(())).ok();
                runtime.block_on(signals.serve(&sender));
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    })?;
    is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the signal thread ended")))?;
    Ok(receiver)
}

struct Signals {
    terminate: SignalStream,
    interrupt: SignalStream,
}

impl Signals {
    fn install() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn serve(mut self, sender: &watch::Sender<Option<Signal>>) {
        let Some(first) = self.next().await else { return };
        tracing::info!(signal = %first, "stopping; a second signal ends the process at once");
        sender.send_replace(Some(first));
        let Some(second) = self.next().await else { return };
        tracing::warn!(signal = %second, "ended before the node had stopped");
        std::process::exit(second.exit_code());
    }

    async fn next(&mut self) -> Option<Signal> {
        tokio::select! {
            received = self.terminate.recv() => received.map(|()| Signal::Terminate),
            received = self.interrupt.recv() => received.map(|()| Signal::Interrupt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal as RawSignal, kill_process};
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    /// Set in a copy of this test binary that acts as the node.
    const ROLE: &str = "TIDELOCK_TEST_SHUTDOWN_NODE";

    /// A node whose event loop hangs: it announces each step and never stops.
    fn hang() -> ! {
        let mut stopping = listen().unwrap();
        println!("\nready");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let signal = runtime.block_on(async { *stopping.wait_for(Option::is_some).await.unwrap() });
        println!("\nstopping for {}", signal.unwrap());
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn the_first_signal_asks_and_the_second_ends() {
        if std::env::var_os(ROLE).is_some() {
            hang();
        }
        for (first, second, announced, code) in [
            (RawSignal::TERM, RawSignal::TERM, "stopping for SIGTERM", 143),
            (RawSignal::INT, RawSignal::INT, "stopping for SIGINT", 130),
            (RawSignal::INT, RawSignal::TERM, "stopping for SIGINT", 143),
        ] {
            let mut node = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "shutdown::tests::the_first_signal_asks_and_the_second_ends",
                    "--nocapture",
                ])
                .env(ROLE, "1")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = Pid::from_child(&node);
            let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(Result::unwrap);
            assert!(lines.any(|line| line == "ready"));
            kill_process(pid, first).unwrap();
            assert!(lines.any(|line| line == announced));
            kill_process(pid, second).unwrap();
            assert_eq!(node.wait().unwrap().code(), Some(code));
        }
    }
}
