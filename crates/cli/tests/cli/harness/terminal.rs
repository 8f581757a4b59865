//! A pseudo-terminal: what a person types, and what is shown.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::eventually;

/// A terminal for a command.
pub struct PseudoTerminal {
    keyboard: File,
    /// The command's end.
    line: OwnedFd,
    screen: Arc<Mutex<String>>,
    /// What was shown up to here has been expected.
    read: usize,
}

impl PseudoTerminal {
    /// Opens a terminal.
    pub fn open() -> PseudoTerminal {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("a terminal");
        let name = ptsname(&keyboard, vec![]).expect("a name");
        let line = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("a terminal");
        let keyboard = File::from(keyboard);
        let (mut output, screen) = (keyboard.try_clone().expect("a handle"), Arc::default());
        let shown: Arc<Mutex<String>> = Arc::clone(&screen);
        // Ends with the terminal.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        PseudoTerminal { keyboard, line, screen, read: 0 }
    }

    /// An end of the terminal for a command.
    pub fn stdio(&self) -> Stdio {
        self.line.try_clone().expect("a handle").into()
    }

    /// Types keys; `\t` is Tab, `\x03` Ctrl-C, `\x04` Ctrl-D.
    pub fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("typed");
    }

    /// Whether what is typed is shown.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.line).expect("a terminal").local_modes.contains(LocalModes::ECHO)
    }

    /// Waits until a text is shown behind those that were expected before.
    pub fn expect(&mut self, text: &str) {
        self.read = eventually(&format!("{text:?} is shown"), || {
            let screen = self.screen.lock().expect("no panic");
            Some(self.read + screen[self.read..].find(text)? + text.len())
        });
    }
}
