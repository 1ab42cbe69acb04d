//! Every law about stores fails on a store that breaks it, and no law is without something that
//! shows it to fail: a broken store in `broken/`, or a broken engine in `mutants/`.
//!
//! With `TENURE_TEST_OTHERS=1` it also tells which other laws find each broken store.

mod broken;
mod mutants;

use libtest_mimic::{Arguments, Failed, Trial};
use tenure_testkit::{Law, laws};

use crate::broken::Breaker;

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(12);
    let breakers = broken::ALL.iter().cloned();
    let mut trials: Vec<_> = breakers
        .map(|breaker| {
            let name = format!("{}::is_broken_by_a_store_that::{}", breaker.law, breaker.name);
            Trial::test(name, move || fails(&breaker))
        })
        .collect();
    trials.push(Trial::test("no_law_is_without_something_that_breaks_it", nothing_is_unbroken));
    libtest_mimic::run(&arguments, trials).exit();
}

fn fails(breaker: &Breaker) -> Result<(), Failed> {
    let law = law(breaker.law)?;
    let subject = (breaker.subject)();
    if let Some(why) = law.does_not_apply(&*subject) {
        return Err(format!("the law does not even apply: {why}").into());
    }
    let Err(failure) = law.check_on(subject) else {
        return Err("the law holds on a store that breaks it".into());
    };
    println!("{}: {failure}", breaker.name);
    if std::env::var_os("TENURE_TEST_OTHERS").is_some() {
        for other in laws::all().into_iter().filter(|other| other.name != law.name) {
            let subject = (breaker.subject)();
            if other.does_not_apply(&*subject).is_none() && other.check_on(subject).is_err() {
                println!("{}: found by {}, too", breaker.name, other.name);
            }
        }
    }
    Ok(())
}

fn nothing_is_unbroken() -> Result<(), Failed> {
    let broken: Vec<_> = broken::ALL.iter().map(|breaker| breaker.law.to_owned()).collect();
    let mutants = mutants::load()?.into_iter().map(|mutant| mutant.caught_by);
    let covered: Vec<_> = broken.into_iter().chain(mutants).collect();
    for name in &covered {
        law(name)?;
    }
    let unbroken: Vec<_> =
        laws::all().into_iter().map(|law| law.name).filter(|name| !covered.iter().any(|law| law == name)).collect();
    if unbroken.is_empty() { Ok(()) } else { Err(format!("nothing shows that these can fail: {unbroken:?}").into()) }
}

fn law(name: &str) -> Result<Law, Failed> {
    laws::all().into_iter().find(|law| law.name == name).ok_or_else(|| format!("there is no law {name:?}").into())
}
