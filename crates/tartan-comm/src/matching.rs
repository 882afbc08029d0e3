//! Which receive takes which message; nothing but the lists of a shelf is read or changed.
//!
//! A message goes to the oldest receive that takes it, a receive takes the oldest message that it can: so messages of one
//! sender, receiver, group and tag keep their order.

use crate::line::ANY;
use crate::lists::LIST;
use crate::shelf::{Full, List, Shelf};

/// What a receive or a probe takes: numbers, or `ANY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveFilter {
    pub source: i32,
    pub tag: i32,
    pub group: u32,
}

/// What a message says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    pub source: i32,
    pub tag: i32,
    pub group: u32,
}

impl ReceiveFilter {
    /// Whether a message is wanted.
    pub fn takes(&self, label: &Label) -> bool {
        self.group == label.group
            && (self.source == ANY || self.source == label.source)
            && (self.tag == ANY || self.tag == label.tag)
    }
}

/// The messages and the receives of one rank that have not found each other. `M` and `R` are what hangs on them.
pub struct Matching<M, R> {
    messages: List<(Label, M)>,
    receives: List<(ReceiveFilter, R)>,
}

impl<M: Copy, R: Copy> Matching<M, R> {
    /// The lists that begin here.
    pub fn new(at: usize) -> Self {
        Self {
            messages: List::new(at),
            receives: List::new(at + LIST),
        }
    }

    /// A message arrives: return it with the receive that takes it, or keep it.
    ///
    /// # Errors
    /// Where there is no room to keep it.
    pub fn arrive(&self, shelf: &Shelf, label: Label, message: M) -> Result<Option<(M, R)>, Full> {
        if let Some((_, receive)) = shelf.remove(&self.receives, |(wanted, _)| wanted.takes(&label))
        {
            return Ok(Some((message, receive)));
        }
        shelf.push(&self.messages, (label, message))?;
        Ok(None)
    }

    /// A receive is posted: return it with the message that it takes and its label, or keep it.
    ///
    /// # Errors
    /// Where there is no room to keep it.
    pub fn receive(
        &self,
        shelf: &Shelf,
        wanted: ReceiveFilter,
        receive: R,
    ) -> Result<Option<(Label, M, R)>, Full> {
        if let Some((label, message)) =
            shelf.remove(&self.messages, |(label, _)| wanted.takes(label))
        {
            return Ok(Some((label, message, receive)));
        }
        shelf.push(&self.receives, (wanted, receive))?;
        Ok(None)
    }

    /// The message that a receive would take now.
    pub fn find(&self, shelf: &Shelf, wanted: ReceiveFilter) -> Option<(Label, M)> {
        shelf.find(&self.messages, |(label, _)| wanted.takes(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, ArenaLayout, PAGE};
    use crate::lists::STOCK;
    use proptest::prelude::*;
    use std::sync::Arc;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Message(Label),
        Receive(ReceiveFilter),
    }

    /// The slow oracle: after every event, look through all that was ever said, oldest first, for a pair that fits.
    fn matched_slowly(events: &[Event]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for end in 1..=events.len() {
            let pair =
                (0..end)
                    .flat_map(|a| (0..end).map(move |b| (a, b)))
                    .find(
                        |&(receive, message)| match (events[receive], events[message]) {
                            (Event::Receive(wanted), Event::Message(label)) => {
                                wanted.takes(&label)
                                    && found.iter().all(|&(m, r)| m != message && r != receive)
                            }
                            _ => false,
                        },
                    );
            found.extend(pair.map(|(receive, message)| (message, receive)));
        }
        found
    }

    fn event() -> impl Strategy<Value = Event> {
        (any::<bool>(), -1..3_i32, -1..2_i32, 0..2_u32).prop_map(|(sends, source, tag, group)| {
            if sends {
                Event::Message(Label {
                    source: source.max(0),
                    tag: tag.max(0),
                    group,
                })
            } else {
                Event::Receive(ReceiveFilter { source, tag, group })
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn as_the_oracle_matches(events in prop::collection::vec(event(), 0..40)) {
            let layout = ArenaLayout { ranks: 1, members: 1, heap: 4 * PAGE, half: PAGE, streams: true };
            let at = layout.heap_at(0);
            let shelf = Shelf::new(Arc::new(Arena::new(layout).unwrap()), at, at + PAGE, 3 * PAGE);
            let matching = Matching::new(at + STOCK);
            let mut found = Vec::new();
            for (number, event) in events.iter().enumerate() {
                match *event {
                    Event::Message(label) => found.extend(matching.arrive(&shelf, label, number).unwrap()),
                    Event::Receive(wanted) => {
                        found.extend(matching.receive(&shelf, wanted, number).unwrap().map(|(_, m, r)| (m, r)));
                    }
                }
            }
            prop_assert_eq!(found, matched_slowly(&events));
        }
    }
}
