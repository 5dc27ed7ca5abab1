//! The event bus: a bounded ring of recent events, which any number of readers follow at their own
//! pace.
//!
//! Publishing neither blocks nor fails. A reader holds only a cursor; one that falls behind the
//! ring is informed how many events it missed and continues with the oldest event left, so a slow
//! reader costs no memory and delays no publisher.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::domain::{
    clock,
    event::{Event, EventBody, EventScope},
    ids::{Cursor, TargetId},
};

/// Number of events that the ring holds unless configured otherwise.
pub const DEFAULT_CAPACITY: usize = 65_536;

/// The bounded event bus; cheap to clone.
#[derive(Debug, Clone)]
pub struct EventBus {
    shared: Arc<BusState>,
}

#[derive(Debug)]
struct BusState {
    ring: Mutex<Ring>,
    happened: Notify,
    capacity: usize,
    /// Cursors of this process are beyond it; those up to it are an earlier process's.
    base: Cursor,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    last: Cursor,
}

/// A reader that follows the bus from a cursor.
#[derive(Debug)]
pub struct EventReader {
    shared: Arc<BusState>,
    after: Cursor,
}

/// Item that a reader receives: an event, or notice of events that it missed.
#[derive(Debug, Clone, PartialEq)]
pub enum BusItem {
    /// The next event.
    Event(Arc<Event>),
    /// Events that are gone: `count` of them, `from` and `to` included.
    Missed {
        /// Number of missed events; 0 if they belong to an earlier process and the number is
        /// unknown.
        count: u64,
        /// The first that is gone.
        from: Cursor,
        /// The last that is gone.
        to: Cursor,
    },
}

// === impl EventBus ===

impl Default for EventBus {
    fn default() -> Self {
        Self::new(DEFAULT_CAPACITY)
    }
}

impl EventBus {
    /// A bus that keeps the last `capacity` events (at least one).
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_base(capacity, Cursor(0))
    }

    /// Creates a bus whose cursors lie beyond those of every earlier process, so that a watcher
    /// whose cursor predates a restart learns that it missed events instead of waiting for that
    /// cursor.
    #[must_use]
    pub fn beyond_earlier_processes(capacity: usize) -> Self {
        let millis = u64::try_from(clock::wall_now().as_millisecond()).unwrap_or_default();
        // Room for a million events a millisecond, within 63 bits until the year 2248.
        Self::with_base(capacity, Cursor(millis << 20))
    }

    fn with_base(capacity: usize, base: Cursor) -> Self {
        let ring = Ring {
            last: base,
            ..Ring::default()
        };
        let shared = BusState {
            ring: Mutex::new(ring),
            happened: Notify::new(),
            capacity: capacity.max(1),
            base,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Publishes what happened and returns its place.
    pub fn publish(
        &self,
        scope: Option<Arc<EventScope>>,
        attempt: u32,
        target: Option<TargetId>,
        body: EventBody,
    ) -> Cursor {
        let mut ring = self.shared.lock();
        let cursor = Cursor(ring.last.0 + 1);
        ring.last = cursor;
        if ring.events.len() == self.shared.capacity {
            ring.events.pop_front();
        }
        ring.events.push_back(Arc::new(Event {
            cursor,
            at: clock::wall_now(),
            scope,
            attempt,
            target,
            body,
        }));
        drop(ring);
        self.shared.happened.notify_waiters();
        cursor
    }

    /// Returns the place of the newest event; 0 before the first.
    #[must_use]
    pub fn newest(&self) -> Cursor {
        self.shared.lock().last
    }

    /// Returns a reader of everything after `after`.
    #[must_use]
    pub fn reader(&self, after: Cursor) -> EventReader {
        EventReader {
            shared: Arc::clone(&self.shared),
            after,
        }
    }

    /// Returns a reader of everything that happens from now on.
    #[must_use]
    pub fn live(&self) -> EventReader {
        self.reader(self.newest())
    }
}

// === impl EventReader ===

impl EventReader {
    /// Returns the cursor of the last event read, or passed over.
    #[must_use]
    pub fn position(&self) -> Cursor {
        self.after
    }

    /// Returns the next event, at once if there is one, else when it happens. Cancel safe.
    pub async fn next(&mut self) -> BusItem {
        let shared = Arc::clone(&self.shared);
        loop {
            let happened = shared.happened.notified();
            tokio::pin!(happened);
            // Before the look, so that what happens between is noticed.
            happened.as_mut().enable();
            if let Some(item) = self.try_next() {
                return item;
            }
            happened.await;
        }
    }

    /// The next event if there is one.
    pub fn try_next(&mut self) -> Option<BusItem> {
        let ring = self.shared.lock();
        if self.after < self.shared.base {
            // Cursor 0 precedes all events, so nothing was missed before it.
            let from = Cursor(self.after.0 + 1);
            let to = self.shared.base;
            let was_here = self.after.0 > 0;
            self.after = to;
            if was_here {
                return Some(BusItem::Missed { count: 0, from, to });
            }
        }
        let oldest = ring.events.front()?.cursor;
        if self.after.0 >= ring.last.0 {
            return None;
        }
        let next = self.after.0 + 1;
        if next < oldest.0 {
            let missed = BusItem::Missed {
                count: oldest.0 - next,
                from: Cursor(next),
                to: Cursor(oldest.0 - 1),
            };
            self.after = Cursor(oldest.0 - 1);
            return Some(missed);
        }
        let index = usize::try_from(next - oldest.0).ok()?;
        let event = Arc::clone(ring.events.get(index)?);
        self.after = event.cursor;
        Some(BusItem::Event(event))
    }
}

impl BusState {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happen(bus: &EventBus) -> Cursor {
        bus.publish(
            None,
            0,
            None,
            EventBody::ConfigurationReloaded {
                generation: 2,
                changed: Vec::new(),
                needs_restart: Vec::new(),
            },
        )
    }

    #[tokio::test]
    async fn a_reader_sees_every_event_in_order_and_waits_for_more() {
        let bus = EventBus::new(8);
        let mut reader = bus.live();
        let first = happen(&bus);
        let second = happen(&bus);
        for expected in [first, second] {
            assert!(
                matches!(reader.next().await, BusItem::Event(event) if event.cursor == expected)
            );
        }
        assert_eq!(reader.try_next(), None);
        let (third, reading) = tokio::join!(async { happen(&bus) }, reader.next());
        assert!(matches!(reading, BusItem::Event(event) if event.cursor == third));
    }

    #[test]
    fn a_slow_reader_is_informed_exactly_what_it_missed() {
        let bus = EventBus::new(3);
        let mut reader = bus.reader(Cursor(0));
        for _ in 0..10 {
            happen(&bus);
        }
        assert_eq!(
            reader.try_next(),
            Some(BusItem::Missed {
                count: 7,
                from: Cursor(1),
                to: Cursor(7)
            })
        );
        let cursors: Vec<u64> = std::iter::from_fn(|| reader.try_next())
            .map(|reading| match reading {
                BusItem::Event(event) => event.cursor.0,
                BusItem::Missed { .. } => 0,
            })
            .collect();
        assert_eq!(cursors, [8, 9, 10]);
    }

    #[test]
    fn a_cursor_from_before_a_restart_reports_missed_events_and_then_follows() {
        let before = EventBus::beyond_earlier_processes(3);
        let cursor = happen(&before);
        let bus = EventBus::with_base(3, Cursor(cursor.0 + 1_000_000));
        let next = happen(&bus);
        let mut reader = bus.reader(cursor);
        assert!(matches!(
            reader.try_next(),
            Some(BusItem::Missed { count: 0, .. })
        ));
        assert!(matches!(reader.try_next(), Some(BusItem::Event(event)) if event.cursor == next));
        let mut from_start = bus.reader(Cursor(0));
        assert!(
            matches!(from_start.try_next(), Some(BusItem::Event(event)) if event.cursor == next)
        );
    }

    #[test]
    fn a_cursor_from_the_future_yields_nothing_and_does_not_panic() {
        let bus = EventBus::new(3);
        happen(&bus);
        assert_eq!(bus.reader(Cursor(99)).try_next(), None);
    }
}
