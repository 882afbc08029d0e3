//! Ranks as threads against the real proxy: messages, collectives, the end of all.
#![cfg(not(loom))]

use std::sync::Arc;
use std::thread;

use tartan_comm::arena::{Arena, ArenaLayout, SMALL};
use tartan_comm::desk::Places;
use tartan_comm::group::{CollectiveFailure, Group};
use tartan_comm::line::{flag, op, status, RequestBody, ANY};
use tartan_comm::meeting::found;
use tartan_comm::proxy::Proxy;
use tartan_comm::rank::{NodeRank, WaitEnd};
use tartan_comm::words::take_desk;

struct Node {
    arena: Arc<Arena>,
    proxy: Proxy,
    ranks: usize,
}

fn places(ranks: usize) -> Places {
    Places {
        node: vec![0; ranks],
        me: 0,
        first: 0,
    }
}

fn node(ranks: usize) -> Node {
    let layout = ArenaLayout {
        ranks,
        members: ranks,
        heap: 1 << 20,
        half: 1 << 24,
        streams: true,
    };
    let arena = Arc::new(Arena::new(layout).unwrap());
    let all: Vec<u32> = (0..ranks as u32).collect();
    found(&arena.window(0).unwrap(), &all);
    let proxy = Proxy::start(Arc::clone(&arena), places(ranks), false).unwrap();
    Node {
        arena,
        proxy,
        ranks,
    }
}

impl Node {
    fn run<T: Send>(&self, work: impl Fn(usize, &mut NodeRank) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let start = |me| {
                let arena = Arc::clone(&self.arena);
                let mut rank = NodeRank::new(arena, places(self.ranks), me, me % 2 == 0);
                scope.spawn(move || work(me, &mut rank))
            };
            let threads: Vec<_> = (0..self.ranks).map(start).collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }
}

fn on() -> bool {
    true
}

fn inline(to: usize, tag: i32, number: u64) -> RequestBody {
    let mut request = RequestBody {
        op: op::SEND,
        flags: flag::INLINE,
        peer: to as i32,
        tag,
        bytes: 8,
        ..RequestBody::default()
    };
    request.inline[..8].copy_from_slice(&number.to_ne_bytes());
    request
}

fn receive(source: i32, tag: i32, bytes: u64) -> RequestBody {
    RequestBody {
        op: op::RECV,
        peer: source,
        tag,
        bytes,
        ..RequestBody::default()
    }
}

#[test]
fn messages_of_many_senders_keep_their_order() {
    let node = node(4);
    let counts = node.run(|me, rank| {
        if me > 0 {
            for number in 0..300 {
                let reply = rank.ask(inline(0, me as i32, number), &mut on).unwrap();
                assert_eq!(reply.status, status::DONE);
            }
            return [300; 3];
        }
        let mut next = [0_u64; 3];
        for _ in 0..900 {
            let reply = rank.ask(receive(ANY, ANY, 8), &mut on).unwrap();
            let sender = reply.source as usize - 1;
            assert_eq!(reply.tag, reply.source);
            assert_eq!(reply.inline[..8], next[sender].to_ne_bytes());
            next[sender] += 1;
        }
        next
    });
    assert_eq!(counts[0], [300; 3]);
}

#[test]
fn payloads_are_read_where_the_sender_has_put_them() {
    let node = node(2);
    node.run(|me, rank| {
        for step in 0..200_usize {
            let payload = vec![step as u8; step * 97];
            if me == 0 {
                let address = rank.lay_out(b"text", &payload).unwrap();
                let request = RequestBody {
                    op: op::SEND,
                    peer: 1,
                    bytes: payload.len() as u64,
                    address,
                    ..RequestBody::default()
                };
                rank.ask(request, &mut on).unwrap();
            } else {
                let reply = rank.ask(receive(0, 0, u64::MAX), &mut on).unwrap();
                let memory = rank.memory_of(reply.source, false);
                let (text, begin) = memory.description(reply.address);
                let mut found = vec![0; reply.bytes as usize];
                rank.arena.base.read(begin, &mut found);
                memory.give_back(reply.address);
                assert_eq!((text.as_slice(), found), (b"text".as_slice(), payload));
            }
        }
    });
}

#[test]
fn both_are_told_that_a_message_is_too_long() {
    let node = node(2);
    let outcomes = node.run(|me, rank| {
        let request = if me == 0 {
            inline(1, 0, 7)
        } else {
            receive(0, 0, 4)
        };
        rank.ask(request, &mut on).unwrap().status
    });
    assert_eq!(outcomes, [status::TOO_LONG; 2]);
}

#[test]
fn twenty_deferred_receives_need_no_more_lines() {
    let node = node(2);
    node.run(|me, rank| {
        let deferred: Vec<u64> = (0..20)
            .map(|tag| {
                let mut request = if me == 0 {
                    inline(1, tag, 5)
                } else {
                    receive(0, tag, 8)
                };
                request.flags |= flag::DEFER;
                rank.post(request, &mut on).unwrap()
            })
            .collect();
        for address in deferred.into_iter().rev() {
            let wait = RequestBody {
                op: op::WAIT,
                address,
                ..RequestBody::default()
            };
            assert_eq!(rank.ask(wait, &mut on).unwrap().status, status::DONE);
            assert_eq!(rank.ask(wait, &mut on).unwrap().status, status::UNKNOWN);
        }
    });
}

#[test]
fn contributions_lie_in_the_order_of_the_ranks() {
    let node = node(4);
    node.run(|me, rank| {
        let mut group = Group::new(Arc::clone(&rank.arena), 0, 0, me, 4).unwrap();
        for step in 0..300 {
            let bytes = if step % 3 == 0 { SMALL } else { 1 } * me;
            let mine = vec![(me + step) as u8; bytes + step % 2 * SMALL];
            group.exchange(rank, b"gather", &mine, &mut on).unwrap();
            for (other, &(at, bytes)) in group.places.iter().enumerate() {
                let mut found = vec![0; bytes];
                group.window.read(at, &mut found);
                let length = if step % 3 == 0 { SMALL } else { 1 } * other + step % 2 * SMALL;
                assert_eq!(found, vec![(other + step) as u8; length]);
            }
        }
    });
}

#[test]
fn all_find_that_they_call_different_things() {
    let node = node(3);
    let texts = node.run(|me, rank| {
        let mut group = Group::new(Arc::clone(&rank.arena), 0, 0, me, 3).unwrap();
        let call: &[u8] = if me == 1 { b"reduce" } else { b"gather" };
        match group.exchange(rank, call, b"", &mut on) {
            Err(CollectiveFailure::Mismatch(texts)) => texts,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(texts, vec![["gather", "reduce", "gather"]; 3]);
}

#[test]
fn a_wait_ends_with_the_reason() {
    let node = node(3);
    let stops = node.run(|me, rank| {
        if me == 2 {
            rank.arena.abort(4, "rank 2 is lost");
            return None;
        }
        let mut group = Group::new(Arc::clone(&rank.arena), 0, 0, me, 3).unwrap();
        let stop = if me == 0 {
            rank.ask(receive(2, ANY, 8), &mut on).unwrap_err()
        } else {
            match group.exchange(rank, b"", b"", &mut on) {
                Err(CollectiveFailure::Stop(stop)) => stop,
                other => panic!("{other:?}"),
            }
        };
        Some((stop, rank.arena.reason().unwrap()))
    });
    let told = Some((WaitEnd::Aborted, (4, "rank 2 is lost".to_string())));
    assert_eq!(stops, [told.clone(), told, None]);
}

#[test]
fn a_rank_that_is_killed_at_the_desk_ends_as_any_other() {
    let node = node(3);
    let stops = node.run(|me, rank| {
        if me == 2 {
            assert!(take_desk(rank.arena.desk(), || false)); // and never leaves it
            assert_eq!(node.proxy.stuck(), None);
            rank.arena.abort(1, "rank 2 is lost");
            return None;
        }
        let mut number = 0;
        loop {
            number += 1;
            let asked = if me == 0 {
                inline(1, 0, number)
            } else {
                receive(0, 0, 8)
            };
            if let Err(stop) = rank.ask(asked, &mut on) {
                return Some(stop);
            }
        }
    });
    assert_eq!(
        stops,
        [Some(WaitEnd::Aborted), Some(WaitEnd::Aborted), None]
    );
    assert_eq!(node.proxy.stuck(), None);
    let taken = node.proxy.with(|desk| desk.take());
    assert!(taken.0.is_empty() && taken.1.is_empty());
}

#[test]
fn more_messages_than_the_desk_can_remember_end_all() {
    let node = node(2);
    let stops = node.run(|me, rank| {
        let mut asked = inline(1 - me, 0, 5);
        asked.flags |= flag::DEFER;
        (0..10_000).find_map(|_| rank.post(asked, &mut on).err())
    });
    assert_eq!(stops, [Some(WaitEnd::Aborted); 2]);
    let (kind, text) = node.arena.reason().unwrap();
    assert_eq!(kind, 3);
    assert!(text.starts_with("more than 1024 messages"), "{text}");
}

#[test]
fn ranks_that_wait_for_each_other_are_stuck() {
    let node = node(3);
    thread::scope(|scope| {
        let proxy = &node.proxy;
        let arena = &node.arena;
        scope.spawn(move || {
            let mut last = None;
            loop {
                let stamp = proxy.stuck();
                if stamp.is_some() && stamp == last {
                    return arena.abort(2, "stuck");
                }
                last = stamp;
                thread::yield_now();
            }
        });
        node.run(|me, rank| {
            if me == 2 {
                return rank.end();
            }
            let other = 1 - me;
            if me == 0 {
                rank.ask(inline(1, 0, 1), &mut on).unwrap();
            } else {
                rank.ask(receive(0, 0, 8), &mut on).unwrap();
            }
            let stop = rank.ask(receive(other as i32, 0, 8), &mut on).unwrap_err();
            assert_eq!(stop, WaitEnd::Aborted);
        });
    });
    assert_eq!(node.arena.reason(), Some((2, "stuck".to_string())));
}

#[test]
fn windows_that_are_given_back_are_empty_and_used_again() {
    let node = node(1);
    let arena = &node.arena;
    let slots: Vec<usize> = (0..1023).map(|_| arena.take_slot()).collect();
    assert_eq!(slots, (1..1024).collect::<Vec<_>>());
    assert_eq!(arena.take_slot(), 1024);
    assert!(arena.window(1024).is_err());
    for slot in [700, 31, 32] {
        let window = arena.window(slot).unwrap();
        found(&window, &[0]);
        window.write(window.len() - 8, &[7; 8]);
        arena.give_slot_back(slot, &window);
        let mut bytes = [1; 8];
        window.read(window.len() - 8, &mut bytes);
        assert_eq!(bytes, [0; 8]);
        assert!(tartan_comm::meeting::members(&window).is_empty());
    }
    let again: Vec<usize> = (0..4).map(|_| arena.take_slot()).collect();
    assert_eq!(again, [31, 32, 700, 1024]);
}

#[test]
fn a_wait_for_any_of_many_ends_with_the_first_and_leaves_the_others() {
    let node = node(2);
    node.run(|me, rank| {
        if me == 1 {
            for number in [5, 3, 19, 0] {
                rank.ask(receive(0, 99, 8), &mut on).unwrap();
                rank.ask(inline(0, number, 7), &mut on).unwrap();
            }
            return;
        }
        let mut asked: Vec<(i32, u64)> = Vec::new();
        for tag in 0..20 {
            let mut request = receive(1, tag, 8);
            request.flags |= flag::DEFER;
            asked.push((tag, rank.post(request, &mut on).unwrap()));
        }
        for number in [5, 3, 19, 0] {
            rank.ask(inline(1, 99, 0), &mut on).unwrap();
            let seqs: Vec<u64> = asked.iter().map(|one| one.1).collect();
            assert!(rank.wait_any(&seqs, &mut on).unwrap());
            let place = asked.iter().position(|one| one.0 == number).unwrap();
            for (tag, seq) in asked.clone() {
                let test = RequestBody {
                    op: op::TEST,
                    address: seq,
                    ..RequestBody::default()
                };
                let is_done = rank.ask(test, &mut on).unwrap().status == status::DONE;
                assert_eq!(is_done, tag == number);
            }
            asked.remove(place);
        }
        assert!(!rank.wait_any(&[1 << 40], &mut on).unwrap());
    });
}
