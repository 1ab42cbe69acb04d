//! What a network, servers and operators can do to elections. Whatever it is, no two ever work at once:
//! every test ends with that, by the moments at which work was done.

mod support;

use std::time::{Duration, Instant};

use support::{LEASE, SEAT, acted_above, leading, stand, stand_with, told, until, within};
use tenure_core::{Event, TakeoverOption, Token, Why};
use tenure_testkit::Desk;
use tenure_testkit::proxy::{Proxy, Way};
use tenure_testkit::servers::{Consul, ConsulCluster, ConsulSetup};

fn through(proxy: &Proxy) -> String {
    format!("consul://{}/tenure?min_lease=1s", proxy.address())
}

/// Waits until no candidate has more connections than the few that it needs: no fault has left any behind.
async fn has_few_connections(servers: &[&Consul], candidates: usize) {
    let few = || servers.iter().map(|server| server.connections()).sum::<usize>() <= 6 * candidates;
    until("each candidate has few connections", few).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_black_holed_stops_before_another_starts() {
    let consul = Consul::start();
    for way in [Way::Up, Way::Down] {
        let proxy = Proxy::start(consul.address());
        let desk = Desk::new();
        let mut one = stand(&through(&proxy), "one", &desk);
        let first = one.leads().await;
        let other = stand(&consul.url(), "other", &desk);
        acted_above(&desk, Token::ZERO).await;
        proxy.black_hole(way);
        assert_eq!(one.loses().await, (first, Why::NotRenewed));
        let second = acted_above(&desk, first).await;
        // What was held back arrives late, and changes nothing.
        proxy.pass();
        one.event("it knows who leads now", |event| match event {
            Event::LeaderChanged { leader: Some(leader) } if leader.token >= second => Some(()),
            _ => None,
        })
        .await;
        has_few_connections(&[&consul], 2).await;
        desk.acts_do_not_overlap().unwrap();
        for one in [one, other] {
            one.election.stop();
            within("it stops", one.election.stopped()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_winning_write_whose_reply_is_lost_is_a_term_all_the_same() {
    let consul = Consul::start();
    let proxy = Proxy::start(consul.address());
    proxy.drop_reply_to("\"Verb\":\"lock\",\"Key\":\"tenure/seats/");
    let desk = Desk::new();
    let mut one = stand(&through(&proxy), "one", &desk);
    within("the reply is lost", proxy.caught(1)).await;
    let _other = stand(&consul.url(), "other", &desk);
    let token = one.leads().await;
    assert_eq!(acted_above(&desk, Token::ZERO).await, token, "it was locked out of its own seat");
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_whose_reply_is_lost_and_broken_connections_cost_no_term() {
    let consul = Consul::start();
    let proxy = Proxy::start(consul.address());
    let desk = Desk::new();
    let mut one = stand(&through(&proxy), "one", &desk);
    let token = one.leads().await;
    let _other = stand(&consul.url(), "other", &desk);
    for (count, marker) in ["/v1/session/renew/", "keys&separator"].into_iter().enumerate() {
        proxy.drop_reply_to(marker);
        within("a reply is lost", proxy.caught(count as u64 + 1)).await;
    }
    for _ in 0..10 {
        tokio::time::sleep(LEASE / 5).await;
        proxy.reset();
    }
    tokio::time::sleep(LEASE).await;
    assert_eq!(one.election.term().map(|term| term.token()), Some(token), "the term was lost");
    has_few_connections(&[&consul], 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_stopped_under_a_heartbeat_briefly_costs_no_term_and_for_long_makes_no_two_leaders() {
    let mut consul = Consul::start();
    let desk = Desk::new();
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &desk));
    let first = acted_above(&desk, Token::ZERO).await;
    let leader = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
    // For a moment, in which a heartbeat or two go unanswered.
    consul.pause();
    tokio::time::sleep(LEASE / 5).await;
    consul.resume();
    let renewals = leader.counter.counts().renewals;
    within("it renews again", leader.counter.wait_for(|counts| counts.renewals > renewals + 1)).await;
    assert_eq!(desk.sittings(), 1, "a pause cost the term");
    consul.pause();
    assert_eq!(leader.loses().await, (first, Why::NotRenewed));
    // Longer than sessions last: they are all over at once when it goes on.
    tokio::time::sleep(LEASE * 2).await;
    consul.resume();
    acted_above(&desk, first).await;
    has_few_connections(&[&consul], 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_restarted_has_forgotten_nothing() {
    let mut consul = ConsulSetup::new().durable().start();
    let desk = Desk::new();
    let candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &desk));
    let first = acted_above(&desk, Token::ZERO).await;
    let identity = consul.entry("tenure/identity", "Value");
    consul.kill();
    consul.restart();
    // In time for the lease, or else with a higher token.
    leading(&candidates).await;
    tokio::time::sleep(LEASE).await;
    let tokens: Vec<_> = candidates.iter().filter_map(|one| Some(one.election.leader()?.token)).collect();
    assert!(tokens.iter().all(|token| *token >= first), "{tokens:?} after {first}");
    assert_eq!(consul.entry("tenure/identity", "Value"), identity);
    has_few_connections(&[&consul], 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_forgotten_everything_is_led_with_a_higher_token() {
    let mut consul = Consul::start();
    let desk = Desk::new();
    // Ahead of what a new server counts from.
    for number in 0..40 {
        consul.ask("PUT", &format!("/v1/kv/other/{number}"), "x");
    }
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &desk));
    let first = acted_above(&desk, Token::ZERO).await;
    for one in &mut candidates {
        one.knows(Token::ZERO).await;
    }
    let identity = consul.entry("tenure/identity", "Value");
    consul.restart();
    let second = acted_above(&desk, first).await;
    assert_ne!(consul.entry("tenure/identity", "Value"), identity);
    // Also if it is deleted now: the floor is above what was minted before.
    for one in &candidates {
        one.election.stop();
        within("it stops", one.election.stopped()).await;
    }
    consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), "");
    let mut newcomer = stand(&consul.url(), "newcomer", &desk);
    assert!(newcomer.leads().await > second, "a token came back");
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_an_operator_ends_ends_the_term_at_once() {
    let consul = Consul::start();
    let desk = Desk::new();
    let mut one = stand(&consul.url(), "one", &desk);
    let first = one.leads().await;
    let mut other = stand(&consul.url(), "other", &desk);
    other.knows(Token::ZERO).await;
    let renewals = one.counter.counts().renewals;
    consul.destroy_session_of(SEAT);
    assert_eq!(one.loses().await, (first, Why::SessionOver));
    // By the news, and not by a heartbeat that has failed.
    assert!(one.counter.counts().renewals <= renewals + 1);
    acted_above(&desk, first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_takeover_safe_nobody_has_the_seat_for_a_lease_after_its_session_was_ended() {
    let consul = Consul::start();
    let desk = Desk::new();
    let url = format!("{}&takeover=safe", consul.url());
    let mut one = stand(&url, "one", &desk);
    let first = one.leads().await;
    // This one is told otherwise, and kept from the seat by Consul all the same.
    let mut other = stand_with(&url, "other", &desk, |election| election.takeover(TakeoverOption::Instant));
    other.knows(Token::ZERO).await;
    let ended = Instant::now();
    consul.destroy_session_of(SEAT);
    assert_eq!(one.loses().await, (first, Why::SessionOver));
    acted_above(&desk, first).await;
    assert!(ended.elapsed() >= LEASE, "the seat was taken after {:?}", ended.elapsed());
    // To be kept from the seat is no failure of the store, though both have bid before.
    for candidate in [&mut one, &mut other] {
        candidate
            .event("it leads or knows who does", |event| match event {
                Event::Error { error } => panic!("told as a failure: {}", told(error)),
                Event::LeaderChanged { leader: Some(leader) } if leader.token > first => Some(()),
                _ => None,
            })
            .await;
    }
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_an_operator_deletes_in_mid_term_makes_no_second_leader_and_tokens_rise() {
    let consul = Consul::start();
    let desk = Desk::new();
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &desk));
    let first = acted_above(&desk, Token::ZERO).await;
    for one in &mut candidates {
        one.knows(Token::ZERO).await;
    }
    consul.ask("DELETE", &format!("/v1/kv/{SEAT}"), "");
    acted_above(&desk, first).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seat_that_an_operator_writes_to_another_is_led_again() {
    let consul = Consul::start();
    let desk = Desk::new();
    let mut one = stand(&consul.url(), "one", &desk);
    let first = one.leads().await;
    let mut other = stand(&consul.url(), "other", &desk);
    other.knows(first).await;
    let record = consul.ask("GET", &format!("/v1/kv/{SEAT}?raw"), "").1;
    let (before, rest) = record.split_once("\"incarnation\":\"").expect("it is held");
    let another = format!("{before}\"incarnation\":\"{}{}", "7".repeat(32), &rest[32..]);
    // A plain write leaves the lock as it is: with the session of the one that led.
    consul.ask("PUT", &format!("/v1/kv/{SEAT}"), &another);
    assert_ne!(consul.entry(SEAT, "Session"), "");
    assert_eq!(one.loses().await, (first, Why::SeatLost));
    assert!(acted_above(&desk, first).await > first);
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_restored_makes_no_two_leaders_and_news_is_heard_on() {
    let consul = Consul::start();
    let desk = Desk::new();
    let mut candidates = ["one", "other"].map(|id| stand(&consul.url(), id, &desk));
    let mut token = acted_above(&desk, Token::ZERO).await;
    for one in &mut candidates {
        one.knows(Token::ZERO).await;
    }
    let file = consul.folder().join("snapshot").display().to_string();
    consul.command(&["snapshot", "save", &file]);
    for _ in 0..2 {
        candidates.iter().for_each(|one| one.election.step_down());
        token = acted_above(&desk, token).await;
    }
    // Everybody has heard of it, when all numbers go back.
    tokio::time::sleep(LEASE / 3).await;
    consul.command(&["snapshot", "restore", &file]);
    token = acted_above(&desk, token).await;
    candidates.iter().for_each(|one| one.election.step_down());
    acted_above(&desk, token).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_server_that_leads_the_others_is_stopped_or_killed_no_two_lead() {
    let mut cluster = ConsulCluster::start();
    let desk = Desk::new();
    let candidates = ["one", "other"].map(|id| stand(&cluster.url(), id, &desk));
    let mut token = acted_above(&desk, Token::ZERO).await;
    for kill in [false, true] {
        let leader = cluster.leader();
        if kill {
            cluster.servers[leader].kill();
        } else {
            cluster.servers[leader].pause();
        }
        // A term may live through it; whoever leads then does so on the servers that are left.
        tokio::time::sleep(LEASE * 2).await;
        leading(&candidates).await;
        if kill {
            cluster.servers[leader].restart();
        } else {
            cluster.servers[leader].resume();
        }
        let leading = candidates.iter().find_map(|one| one.election.term());
        if let Some(term) = leading {
            assert!(term.token() >= token, "token {} after {token}", term.token());
            token = term.token();
        }
    }
    has_few_connections(&cluster.servers.iter().collect::<Vec<_>>(), 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nobody_leads_and_with_it_back_somebody_does() {
    let mut cluster = ConsulCluster::start();
    let desk = Desk::new();
    let mut candidates = ["one", "other"].map(|id| stand(&cluster.url(), id, &desk));
    let first = acted_above(&desk, Token::ZERO).await;
    let leader = cluster.leader();
    cluster.servers.iter_mut().enumerate().filter(|(number, _)| *number != leader).for_each(|(_, one)| one.pause());
    let holder = candidates.iter_mut().find(|one| one.election.is_leader()).expect("one leads");
    assert_eq!(holder.loses().await, (first, Why::NotRenewed));
    assert!(candidates.iter().all(|one| !one.election.is_leader()));
    cluster.servers.iter_mut().for_each(Consul::resume);
    acted_above(&desk, first).await;
    has_few_connections(&cluster.servers.iter().collect::<Vec<_>>(), 2).await;
    desk.acts_do_not_overlap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_candidates_race_and_one_wins_each_time() {
    let consul = Consul::start();
    let desk = Desk::new();
    let candidates: Vec<_> = (0..40).map(|number| stand(&consul.url(), &format!("c{number}"), &desk)).collect();
    let mut token = Token::ZERO;
    for _ in 0..3 {
        token = acted_above(&desk, token).await;
        let leader = within("one leads", async {
            loop {
                match candidates.iter().find(|one| one.election.is_leader()) {
                    Some(leader) => return leader,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        });
        leader.await.election.stop();
    }
    desk.shifts_do_not_overlap().unwrap();
    for one in &candidates {
        one.election.stop();
    }
    for one in &candidates {
        within("it stops", one.election.stopped()).await;
    }
}
