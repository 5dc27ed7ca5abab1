//! Room for the tests that keep a core busy or start several processes: at once, each would see
//! the others in its times.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of them that run at a time: more than the two cores of a small machine, because they wait
/// for half of their time.
const AT_ONCE: u32 = 4;

static ROOM: Semaphore = Semaphore::const_new(AT_ONCE as usize);

/// Waits until there is room for one more. A test asks once, and holds it until it ends.
pub(crate) async fn room() -> SemaphorePermit<'static> {
    ROOM.acquire().await.unwrap()
}

/// Waits until none of the others runs.
pub(crate) async fn whole_room() -> SemaphorePermit<'static> {
    ROOM.acquire_many(AT_ONCE).await.unwrap()
}
