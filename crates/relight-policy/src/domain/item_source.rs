//! Streams written as a state and the step that takes it from one item to the next.

use futures_util::{Stream, StreamExt as _, stream::unfold};

/// A state from which one item after the other is taken.
pub trait ItemSource: Send {
    /// One item.
    type Item: Send;

    /// Returns the next item; `None` at the end, after which it is not asked again.
    fn next(&mut self) -> impl Future<Output = Option<Self::Item>> + Send;
}

/// Returns the items of a source, which is dropped at their end, or with the stream.
pub fn items_of<S: ItemSource>(source: S) -> impl Stream<Item = S::Item> + Send {
    // Boxed, because each item moves it.
    unfold(Box::new(source), |mut source| async move {
        let item = source.next().await?;
        Some((item, source))
    })
    .fuse()
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::Arc};

    use super::*;

    /// Counts down to 1, and fails when it is asked behind its end.
    struct CountDown {
        left: Option<u8>,
        _held: Arc<()>,
    }

    impl ItemSource for CountDown {
        type Item = u8;

        async fn next(&mut self) -> Option<u8> {
            let left = self.left.expect("it is not asked behind its end");
            self.left = left.checked_sub(1);
            self.left.map(|_| left)
        }
    }

    #[tokio::test]
    async fn a_source_is_dropped_at_its_end_and_not_asked_again() {
        let held = Arc::new(());
        let left = Some(2);
        let source = CountDown {
            left,
            _held: Arc::clone(&held),
        };
        let mut items = pin!(items_of(source));
        assert_eq!(items.next().await, Some(2));
        assert_eq!(items.next().await, Some(1));
        assert_eq!(Arc::strong_count(&held), 2);
        assert_eq!(items.next().await, None);
        assert_eq!(Arc::strong_count(&held), 1, "it is dropped");
        assert_eq!(items.next().await, None);
    }
}
