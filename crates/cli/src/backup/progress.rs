//! Shows the progress of a backup on a terminal; without a terminal it shows nothing.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Interval of redraws while no data arrives.
const MOVES: Duration = Duration::from_millis(100);

/// A progress line on standard error, which disappears when this is dropped. There is none if
/// standard error is not a terminal.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins with an unknown total.
    pub fn begin(doing: &'static str) -> Progress {
        let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}");
        let bar = ProgressBar::new_spinner().with_message(doing);
        bar.set_style(style.expect("invariant: the template is one"));
        bar.enable_steady_tick(MOVES);
        Progress { bar }
    }

    /// Sets the approximate total, in bytes.
    pub fn expect(&self, about_bytes: u64) {
        let template = "{msg} {wide_bar} {bytes} of about {total_bytes}, {bytes_per_sec}, {eta} left";
        self.bar.set_length(about_bytes);
        self.bar.set_style(ProgressStyle::with_template(template).expect("invariant: the template is one"));
    }

    /// Adds received bytes.
    pub fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
