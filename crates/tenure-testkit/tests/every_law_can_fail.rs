//! Every law can fail: for each law there is a defective store in `broken/`, a flaw of the tiny server, or a mutant
//! of the engine in `mutants/` that breaks it.
//!
//! With `TENURE_TEST_OTHERS=1` this test also prints which other laws find each defective store.

mod broken;
mod mutants;
mod tiny;

use libtest_mimic::{Arguments, Failed, Trial};
use tenure_testkit::{Law, faults, laws};

use crate::broken::Breaker;
use crate::tiny::{Flaw, TinyServer};

/// The laws about faults, each with a flaw that breaks it.
const FLAWS: &[(&str, Flaw)] = &[
    ("a_leader_that_is_cut_off_stops_before_another_starts", Flaw::AnswersRenewalsItself),
    ("a_winning_bid_whose_reply_is_lost_still_leads_to_a_term", Flaw::ReadsFromItsCache),
    ("a_renewal_whose_reply_is_lost_costs_no_term", Flaw::ReadsFromItsCache),
    ("a_message_cut_in_the_middle_costs_no_term", Flaw::KeepsHalfAReply),
    ("connections_that_are_reset_cost_no_term", Flaw::NeverReconnects),
    ("a_watch_that_is_cut_is_resumed", Flaw::WatchesABrokenConnection),
    ("a_watch_that_falls_silent_is_replaced", Flaw::PromisesProvenPush),
    ("an_abandoned_connection_is_closed_even_if_it_answers_later", Flaw::KeepsAbandonedConnections),
    ("a_server_paused_briefly_costs_no_term_and_paused_for_long_costs_one", Flaw::TreatsSilenceAsSuccess),
    ("a_server_that_is_killed_and_restarted_keeps_its_seats", Flaw::ForgetsWhenRestarted),
    ("after_a_server_restarts_empty_the_seat_is_waited_out_and_tokens_rise", Flaw::HasNoFloor),
    ("faults_leave_no_connections_behind", Flaw::KeepsAbandonedConnections),
    ("of_many_candidates_one_leads_at_a_time", Flaw::WritesWithoutACondition),
];

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
    trials.extend(
        FLAWS.iter().map(|(law, flaw)| Trial::test(format!("{law}::is_broken_by::{flaw:?}"), || finds(law, *flaw))),
    );
    trials.push(Trial::test("every_law_has_something_that_breaks_it", every_law_is_covered));
    libtest_mimic::run(&arguments, trials).exit();
}

fn fails(breaker: &Breaker) -> Result<(), Failed> {
    let law = law(breaker.law)?;
    let subject = (breaker.subject)();
    if let Some(why) = law.does_not_apply(&*subject) {
        return Err(format!("the law does not apply: {why}").into());
    }
    let Err(failure) = law.check_on(subject) else {
        return Err("the law passes on a store that should break it".into());
    };
    println!("{}: {failure}", breaker.name);
    if std::env::var_os("TENURE_TEST_OTHERS").is_some() {
        for other in laws::all().into_iter().filter(|other| other.name != law.name) {
            let subject = (breaker.subject)();
            if other.does_not_apply(&*subject).is_none() && other.check_on(subject).is_err() {
                println!("{}: also found by {}", breaker.name, other.name);
            }
        }
    }
    Ok(())
}

fn finds(name: &str, flaw: Flaw) -> Result<(), Failed> {
    let law = faults::all().into_iter().find(|law| law.name == name).ok_or("there is no such law")?;
    match law.check_on(Box::new(TinyServer::with(Some(flaw)))) {
        Ok(()) => Err("the law passes on a store that should break it".into()),
        Err(failure) => {
            println!("{flaw:?}: {failure}");
            Ok(())
        }
    }
}

fn every_law_is_covered() -> Result<(), Failed> {
    let broken: Vec<_> = broken::ALL.iter().map(|breaker| breaker.law.to_owned()).collect();
    let mutants = mutants::load()?.into_iter().map(|mutant| mutant.caught_by);
    let covered: Vec<_> = broken.into_iter().chain(mutants).collect();
    for name in &covered {
        law(name)?;
    }
    let covered = |name: &str| covered.iter().any(|law| law == name) || FLAWS.iter().any(|(law, _)| *law == name);
    let names = laws::all().into_iter().map(|law| law.name).chain(faults::all().into_iter().map(|law| law.name));
    let unbroken: Vec<_> = names.filter(|name| !covered(name)).collect();
    if unbroken.is_empty() { Ok(()) } else { Err(format!("nothing breaks these laws: {unbroken:?}").into()) }
}

fn law(name: &str) -> Result<Law, Failed> {
    laws::all().into_iter().find(|law| law.name == name).ok_or_else(|| format!("there is no law {name:?}").into())
}
