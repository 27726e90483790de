//! Several contenders in interleaved rounds, A B C and then C B A, so that slow drifts favour no
//! contender. Also what was measured of each contender, round by round.
//!
//! A contender that fails is left out, with a note. It never ends the experiment. If it failed
//! after its start, [`Measured::failure`] says why, so that no claim about it holds by other parts.
//! Figures of the same round are compared with each other ([`claims`](crate::claims)).

use wakeful_load::internals::bench::{BenchError, Undisturbed};
use wakeful_load::internals::program::ProgramError;
use wakeful_load::internals::results::Cell;
use wakeful_load::internals::servers::ServerError;

use crate::lab::{Lab, LabError};

/// What was measured of each contender.
#[derive(Debug)]
pub struct Measured<T> {
    contenders: Vec<Contender<T>>,
}

#[derive(Debug)]
struct Contender<T> {
    name: String,
    /// One entry for each round. All are empty if the contender was left out.
    rounds: Vec<Option<T>>,
    left_out: Option<LeftOut>,
}

#[derive(Debug)]
struct LeftOut {
    why: String,
    had_started: bool,
}

/// The reason why a contender has no figures.
#[derive(Debug)]
pub enum Failure {
    /// The user ended the experiment.
    Interrupted,
    /// The machine is at fault, and not the contender.
    Machine(BenchError),
    /// The contender did not start, or what measures it did not. It is left out.
    NotStarted(String),
    /// The contender is at fault, and is left out.
    LeftOut(String),
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            error if error.is_interrupted() => Self::Interrupted,
            error @ BenchError::Kernel { .. } => Self::Machine(error),
            error @ BenchError::Load { .. } => Self::LeftOut(error.to_string()),
            error => Self::NotStarted(error.to_string()),
        }
    }
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        BenchError::from(error).into()
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Interrupted => Self::Interrupted,
            ProgramError::Bench(error) => error.into(),
            error @ (ProgramError::Cpus(_) | ProgramError::Spawn { .. }) => {
                Self::NotStarted(error.to_string())
            }
            error => Self::LeftOut(error.to_string()),
        }
    }
}

/// Measures contenders by name in `rounds` interleaved rounds. `run` gets the index of a contender
/// and a label for the user. If the user ends the measurement, returns what there is so far. The
/// caller has to tell the bench's progress how long the measurement takes, before an experiment's
/// first part.
///
/// # Errors
/// The machine is at fault.
pub fn measure<T>(
    lab: &mut Lab<'_>,
    part: &str,
    contenders: &[String],
    rounds: usize,
    mut run: impl FnMut(&mut Lab<'_>, usize, &str) -> Result<Undisturbed<T>, Failure>,
) -> Result<Measured<T>, LabError> {
    let mut measured = Measured::new(contenders.iter().cloned(), rounds);
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    'rounds: for round in 0..rounds {
        for &one in &order {
            if lab.bench.is_interrupted() {
                break 'rounds;
            }
            if measured.contenders[one].left_out.is_some() {
                lab.bench.progress.end();
                continue;
            }
            let label = format!("round {} of {rounds}: {part}: {}", round + 1, contenders[one]);
            match run(lab, one, &label) {
                Ok(figures) => {
                    lab.counted.kept += 1;
                    lab.counted.repeated += figures.repeated;
                    lab.counted.spoilt += usize::from(figures.spoilt);
                    measured.contenders[one].rounds[round] = Some(figures.value);
                }
                Err(Failure::Interrupted) => break 'rounds,
                Err(Failure::Machine(error)) => return Err(error.into()),
                Err(Failure::NotStarted(why)) => measured.leave_out(lab, one, why, false),
                Err(Failure::LeftOut(why)) => measured.leave_out(lab, one, why, true),
            }
        }
        order.reverse();
    }
    for Contender { name, left_out, .. } in &measured.contenders {
        if let Some(LeftOut { why, .. }) = left_out {
            lab.notes.push(format!("{part}: {name} was left out: {why}"));
        }
    }
    Ok(measured)
}

impl<T> Default for Measured<T> {
    /// Returns the value without contenders.
    fn default() -> Self {
        Self { contenders: Vec::new() }
    }
}

impl<T> Measured<T> {
    fn new(names: impl Iterator<Item = String>, rounds: usize) -> Self {
        let contender =
            |name| Contender { name, rounds: (0..rounds).map(|_| None).collect(), left_out: None };
        Self { contenders: names.map(contender).collect() }
    }

    /// Makes a value from figures that were measured elsewhere, or made up, as in tests of an
    /// experiment's claims.
    #[must_use]
    pub fn canned(contenders: Vec<(&str, Vec<T>)>) -> Self {
        let contender = |(name, rounds): (&str, Vec<T>)| Contender {
            name: name.to_owned(),
            rounds: rounds.into_iter().map(Some).collect(),
            left_out: None,
        };
        Self { contenders: contenders.into_iter().map(contender).collect() }
    }

    fn leave_out(&mut self, lab: &mut Lab<'_>, one: usize, why: String, had_started: bool) {
        let contender = &mut self.contenders[one];
        lab.bench.progress.say(&format!("{} is left out: {why}", contender.name));
        contender.leave_out(LeftOut { why, had_started });
    }

    /// Lets a contender fail, in a test.
    #[cfg(test)]
    pub(crate) fn fail(&mut self, name: &str, why: &str) {
        let mut of_name = self.contenders.iter_mut().filter(|one| one.name == name);
        let contender = of_name.next().expect("there is such a contender");
        contender.leave_out(LeftOut { why: why.to_owned(), had_started: true });
    }

    /// Returns why the contender with that name was left out, if it had started.
    #[must_use]
    pub fn failure(&self, name: &str) -> Option<&str> {
        let left_out = self.contenders.iter().find(|one| one.name == name)?.left_out.as_ref()?;
        left_out.had_started.then_some(&left_out.why)
    }

    /// Returns the contenders that were measured at least once, in the order of the experiment.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let measured = |one: &&Contender<T>| one.rounds.iter().any(Option::is_some);
        self.contenders.iter().filter(measured).map(|one| one.name.as_str())
    }

    /// Returns what was measured of the contender with that name, round by round. Empty if there is
    /// no such contender.
    #[must_use]
    pub fn of(&self, name: &str) -> &[Option<T>] {
        let one = self.contenders.iter().find(|one| one.name == name);
        one.map_or(&[], |one| &one.rounds)
    }

    /// Returns one figure, round by round, as [`claims`](crate::claims) take it.
    pub fn figures(&self, name: &str, figure: impl Fn(&T) -> Option<f64>) -> Vec<Option<f64>> {
        self.of(name).iter().map(|round| round.as_ref().and_then(&figure)).collect()
    }

    /// Returns one figure as a cell: the median, the lowest and the highest of the rounds.
    pub fn cell(&self, name: &str, figure: impl Fn(&T) -> Option<f64>) -> Cell {
        let figures = self.figures(name, figure);
        Cell::of(&figures.into_iter().flatten().collect::<Vec<_>>())
    }

    /// Returns the name among `of` whose figure has the lowest median. `None` if none of them has
    /// the figure.
    pub fn lowest<'a>(
        &self,
        of: impl IntoIterator<Item = &'a str>,
        figure: impl Fn(&T) -> Option<f64>,
    ) -> Option<&'a str> {
        let medians = of.into_iter().filter_map(|name| {
            let figures: Vec<f64> = self.figures(name, &figure).into_iter().flatten().collect();
            (!figures.is_empty())
                .then(|| (name, wakeful_load::internals::statistics::median(&figures)))
        });
        medians.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(name, _)| name)
    }

    /// Whether nothing at all was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names().next().is_none()
    }
}

impl<T> Contender<T> {
    fn leave_out(&mut self, left_out: LeftOut) {
        self.rounds.iter_mut().for_each(|round| *round = None);
        self.left_out = Some(left_out);
    }
}

#[cfg(test)]
mod tests {
    use wakeful_load::LoadError;

    use super::*;

    #[test]
    fn one_that_did_not_start_is_told_from_one_that_failed() {
        let (name, addr, how) = ("a".to_owned(), String::new(), String::new());
        let did_not_start = ServerError::Ended { name, addr, how };
        assert!(matches!(did_not_start.into(), Failure::NotStarted(_)));
        let silent = BenchError::Load { server: "a".to_owned(), error: LoadError::Silent(1) };
        assert!(matches!(silent.into(), Failure::LeftOut(_)));
    }

    #[test]
    fn the_lowest_is_that_of_the_medians_and_of_those_asked_for() {
        let measured = Measured::canned(vec![
            ("a", vec![1.0, 9.0, 9.0]),
            ("b", vec![5.0, 5.0, 50.0]),
            ("c", vec![2.0, 2.0, 2.0]),
            ("d", vec![f64::NAN]),
        ]);
        let lowest = |names: &[&'static str]| {
            measured.lowest(names.iter().copied(), |figure| {
                Some(*figure).filter(|figure| figure.is_finite())
            })
        };
        assert_eq!(lowest(&["a", "b"]), Some("b"));
        assert_eq!(lowest(&["a", "b", "c", "d"]), Some("c"));
        assert_eq!(lowest(&["d", "e"]), None);
    }
}
