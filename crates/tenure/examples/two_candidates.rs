//! Two candidates for one seat: the first one leads and steps down, and the second one takes over at once.

use std::time::{Duration, Instant};

use tenure::testing::Memory;
use tenure::{Elections, Ended};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two connections to one memory, as two processes would have to a server.
    let memory = Memory::new();
    let (one, other) = (Elections::new(memory.store()), Elections::new(memory.store()));
    let lease = Duration::from_secs(3);
    let a = one.election("nightly-jobs").candidate("a").lease(lease).start()?;
    a.elected().await?;
    let b = other.election("nightly-jobs").candidate("b").lease(lease).start()?;
    println!("a leads with token {}; b waits", a.term().ok_or("a has just been elected")?.token());

    // Works until it should wrap up, and takes 50 ms for that.
    let work = a.run_while_leader(async |term| {
        term.ending().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        println!("a has wrapped up");
    });
    let hand_over = async {
        let asked = Instant::now();
        a.step_down();
        let token = b.run_while_leader(async |term| term.token()).await?;
        println!("b leads with token {token}, {:?} after a was asked to step down", asked.elapsed());
        Ok::<_, Ended>(())
    };
    // The work must have started before `a` steps down.
    tokio::try_join!(work, hand_over)?;

    one.stop();
    other.stop();
    one.stopped().await;
    other.stopped().await;
    Ok(())
}
