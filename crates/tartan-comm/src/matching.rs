//! Which receive takes which message: pure.
//!
//! A message goes to the oldest receive that takes it, a receive takes the oldest message that it can: so messages of one
//! sender, receiver, group and tag keep their order.

use std::collections::VecDeque;

use crate::line::ANY;

/// What a receive or a probe takes: numbers, or `ANY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
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

impl Wanted {
    /// Whether a message is wanted.
    pub fn takes(&self, label: &Label) -> bool {
        self.group == label.group
            && (self.source == ANY || self.source == label.source)
            && (self.tag == ANY || self.tag == label.tag)
    }
}

/// The messages and the receives of one rank that have not found each other. `M` and `R` are what hangs on them.
pub struct Matching<M, R> {
    messages: VecDeque<(Label, M)>,
    receives: VecDeque<(Wanted, R)>,
}

impl<M, R> Default for Matching<M, R> {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            receives: VecDeque::new(),
        }
    }
}

impl<M, R> Matching<M, R> {
    /// A message arrives: return it with the receive that takes it, or keep it.
    pub fn arrive(&mut self, label: Label, message: M) -> Option<(M, R)> {
        match self
            .receives
            .iter()
            .position(|(wanted, _)| wanted.takes(&label))
        {
            Some(place) => self
                .receives
                .remove(place)
                .map(|(_, receive)| (message, receive)),
            None => {
                self.messages.push_back((label, message));
                None
            }
        }
    }

    /// A receive is posted: return it with the message that it takes and its label, or keep it.
    pub fn receive(&mut self, wanted: Wanted, receive: R) -> Option<(Label, M, R)> {
        match self
            .messages
            .iter()
            .position(|(label, _)| wanted.takes(label))
        {
            Some(place) => {
                let (label, message) = self.messages.remove(place)?;
                Some((label, message, receive))
            }
            None => {
                self.receives.push_back((wanted, receive));
                None
            }
        }
    }

    /// The message that a receive would take now.
    pub fn find(&self, wanted: Wanted) -> Option<&(Label, M)> {
        self.messages.iter().find(|(label, _)| wanted.takes(label))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Message(Label),
        Receive(Wanted),
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
                Event::Receive(Wanted { source, tag, group })
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn as_the_oracle_matches(events in prop::collection::vec(event(), 0..40)) {
            let mut matching = Matching::default();
            let mut found = Vec::new();
            for (number, event) in events.iter().enumerate() {
                match *event {
                    Event::Message(label) => found.extend(matching.arrive(label, number)),
                    Event::Receive(wanted) => {
                        found.extend(matching.receive(wanted, number).map(|(_, m, r)| (m, r)));
                    }
                }
            }
            prop_assert_eq!(found, matched_slowly(&events));
        }
    }
}
