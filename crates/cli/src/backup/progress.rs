//! How far a backup has come, on a terminal; nowhere else.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often it moves while nothing comes.
const MOVES: Duration = Duration::from_millis(100);

/// A line on standard error that goes away with this. Where that is no terminal there is none.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins with an amount that is not known yet.
    pub fn begin(doing: &'static str) -> Progress {
        let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}");
        let bar = ProgressBar::new_spinner().with_message(doing);
        bar.set_style(style.expect("invariant: the template is one"));
        bar.enable_steady_tick(MOVES);
        Progress { bar }
    }

    /// About so many bytes are to come.
    pub fn expect(&self, about_bytes: u64) {
        let template = "{msg} {wide_bar} {bytes} of about {total_bytes}, {bytes_per_sec}, {eta} left";
        self.bar.set_length(about_bytes);
        self.bar.set_style(ProgressStyle::with_template(template).expect("invariant: the template is one"));
    }

    /// So many more have come.
    pub fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
