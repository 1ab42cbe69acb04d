//! The steps of a hand-over, from the lines `NANOSECONDS STEP` that all processes of `tenure` write to one file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Profile {
    path: PathBuf,
    /// The size of the file at the beginning of the round.
    read: u64,
    rounds: usize,
    /// The times of each step after the end of the command, in milliseconds.
    steps: BTreeMap<String, Vec<f64>>,
}

impl Profile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, read: 0, rounds: 0, steps: BTreeMap::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn begin_round(&mut self) {
        self.read = fs::metadata(&self.path).map_or(0, |file| file.len());
    }

    /// Takes in the steps from the end of a command to the start of the next.
    pub(crate) fn end_round(&mut self, ended: u64, began: u64) {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let lines = text.get(self.read as usize..).unwrap_or_default().lines();
        let mut seen = BTreeMap::<String, u32>::new();
        for (at, step) in lines.filter_map(|line| line.split_once(' ')) {
            let Some(at) = at.parse::<u64>().ok().filter(|at| (ended..=began).contains(at)) else { continue };
            let times = seen.entry(step.to_owned()).or_default();
            *times += 1;
            let step = if *times == 1 { step.to_owned() } else { format!("{step}, {times}.") };
            self.steps.entry(step).or_default().push((at - ended) as f64 / 1e6);
        }
        self.steps.entry("the next command starts".to_owned()).or_default().push((began - ended) as f64 / 1e6);
        self.rounds += 1;
    }

    /// Prints the steps of most rounds, in the order of their median times, and begins anew.
    pub(crate) fn print(&mut self) {
        let mut steps: Vec<(f64, String)> = std::mem::take(&mut self.steps)
            .into_iter()
            .filter(|(_, times)| times.len() * 2 > self.rounds)
            .map(|(step, mut times)| {
                times.sort_by(f64::total_cmp);
                (times[times.len() / 2], step)
            })
            .collect();
        steps.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut before = 0.0;
        for (at, step) in steps {
            println!("    {at:6.2} ms  +{:5.2}  {step}", at - before);
            before = at;
        }
        self.rounds = 0;
    }
}
