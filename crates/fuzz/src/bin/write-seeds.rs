//! Writes the seeds of all targets to the corpus. Run it after a target or a format is added.

use std::io;

use tidelock_fuzz::{corpus, targets};

fn main() -> io::Result<()> {
    for target in targets::all() {
        let seeds = (target.seeds)();
        for seed in &seeds {
            (target.run)(seed);
            corpus::store(target.name, seed)?;
        }
        println!("{}: {} seeds", target.name, seeds.len());
    }
    Ok(())
}
