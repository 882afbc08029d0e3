// Messages of slots: groups of threads inside a running kernel that are ranks of a communicator.
//
//     #include <tartan_comm.h>
//     extern "C" __global__ void relay(tartan::Slots slots, float* rows, int n) {
//         auto me = slots.here();                              // once, by all threads
//         me.recv(rows, n * sizeof(float), 0);                 // every call is made by all threads of the slot
//         me.send(rows, n * sizeof(float), 0);
//     }
//
// A slot is one or more whole blocks. Sizes are in bytes; the type of an item travels with a message. A buffer is the
// same address in all threads, or a variable of each thread's own: then each receives the message, and thread 0's is
// sent. A mistake in a call ends all ranks with its reason.
//
// The rules R1 to R8 of the order of memory are in docs/comm.md; each place that depends on one names it.
#pragma once

#include "tartan_comm_group.h"

namespace tartan {

// Where a message came from.
struct Status {
    int source;
    int tag;
    u64 bytes;
    bool found;  // of `probe`: whether there is a message
};

// A send or a receive that was begun.
struct Request {
    u64 number = 0;
    void* data = nullptr;
    u64 room = 0;
    int to = -1;  // of a send
    bool held = false;
};

enum Fold { SUM, MAX };

// The communicator of a slot. It ends with the kernel's function; the slot sends and receives nothing afterwards.
class Slot : public SlotGroup {
  public:
    TARTAN_DEVICE explicit Slot(const Slots& slots) : SlotGroup(slots) {
        meet();
        if (leads() && state_->entered++) fail({TWICE});
        meet_all();
    }
    TARTAN_DEVICE ~Slot() {
        if (leads()) {
            describe(ENDED, 0, 0, IN_BASE, 0, 0, nullptr);
            store_release<EPOCH>(word(page_ + WAIT_AT), ++state_->epoch | 1);
        }
    }

    // ---- Messages ---------------------------------------------------------------------------------------------------

    // Send, and return when a receive has taken the message.
    template <class T> TARTAN_DEVICE void send(const T* data, u64 bytes, int to, int tag = 0) {
        begin_send(data, bytes, to, tag, 0);
    }

    // Wait for a message and copy it to `data`, which has room for some bytes.
    template <class T>
    TARTAN_DEVICE Status recv(T* data, u64 room, int source = ANY_SOURCE, int tag = ANY_TAG) {
        meet();
        if (leads() && are_valid(source, tag, true) && are_whole<T>(room)) {
            if (post(asked(RECV, 0, source, tag, room)) && answered(RECV, source, tag)) take_answer<T>(room);
        }
        return taken(data);
    }

    // Begin to send; the data may be changed at once. At most 32 of a slot's larger messages wait to be received.
    template <class T> TARTAN_DEVICE Request isend(const T* data, u64 bytes, int to, int tag = 0) {
        begin_send(data, bytes, to, tag, DEFERRED);
        return {state_->number, nullptr, 0, to, true};
    }

    // Begin to receive; `wait` copies the message to `data`, which has room for some bytes.
    template <class T> TARTAN_DEVICE Request irecv(T* data, u64 room, int source = ANY_SOURCE, int tag = ANY_TAG) {
        meet();
        if (leads() && are_valid(source, tag, true) && are_whole<T>(room)) {
            post(asked(RECV, DEFERRED, source, tag, room));
            state_->number = state_->seq;
        }
        meet_all();
        return {state_->number, data, room, -1, true};
    }

    // Wait for a request; T is the type of its items.
    template <class T> TARTAN_DEVICE Status wait(Request& request) {
        end<T>(WAIT, request);
        return request.to < 0 ? taken(static_cast<T*>(request.data)) : came();
    }

    // Whether a request has ended, and then what `wait` would do.
    template <class T> TARTAN_DEVICE bool test(Request& request) {
        end<T>(TEST, request);
        if (state_->answer.status == PENDING) return false;
        if (request.to < 0) taken(static_cast<T*>(request.data));
        return true;
    }

    template <class T, class U>
    TARTAN_DEVICE Status sendrecv(const T* data, u64 bytes, int to, int tag, U* into, u64 room, int source = ANY_SOURCE,
                                  int from_tag = ANY_TAG) {
        Request sending = isend(data, bytes, to, tag);
        const Status status = recv(into, room, source, from_tag);
        wait<T>(sending);
        return status;
    }

    template <class T>
    TARTAN_DEVICE Status sendrecv_replace(T* data, u64 bytes, int to, int tag, int source = ANY_SOURCE,
                                          int from_tag = ANY_TAG) {
        return sendrecv(data, bytes, to, tag, data, bytes, source, from_tag);
    }

    // Where the message comes from that a receive would take; `waits` until there is one.
    TARTAN_DEVICE Status probe(int source = ANY_SOURCE, int tag = ANY_TAG, bool waits = true) {
        meet();
        if (leads() && are_valid(source, tag, true) && post(asked(PROBE, waits ? 0 : NOW, source, tag, 0)))
            answered(PROBE, source, tag);
        return came();
    }

    // ---- Collectives: all ranks call the same ones in the same order ------------------------------------------------

    // Wait for all ranks.
    TARTAN_DEVICE void barrier() { exchange({"barrier"}, nullptr, 0); }

  private:
    // ---- Payloads ---------------------------------------------------------------------------------------------------

    template <class T> TARTAN_DEVICE void begin_send(const T* data, u64 bytes, int to, int tag, u64 flags) {
        meet();
        const bool in_line = bytes <= INLINE_BYTES;
        if (leads()) {
            if (are_valid(to, tag, false) && are_whole<T>(bytes) && !in_line) lay_out<T>(bytes);
        }
        meet_all();
        if (!in_line) {
            copy_out(slots_.base + state_->place, data, bytes);
            meet();
        }
        if (leads()) {
            Asked request = asked(SEND, flags, to, tag, bytes);
            if (in_line) {
                request.flags |= IN_LINE | Kind<T>::character() | ONE_DIMENSION;
                copy(request.inside, reinterpret_cast<const octet*>(data), bytes, 0, 1);
            } else {
                request.address = state_->block;
            }
            const bool posted = post(request);
            state_->number = state_->seq;
            if (posted && !flags && answered(SEND, to, tag)) refuse_long(to);
        }
        meet_all();
    }

    TARTAN_DEVICE void refuse_long(int to) {
        const Answer& answer = state_->answer;
        if (answer.status == IS_TOO_LONG) fail({SENT_TOO_LONG, to, answer.tag, answer.bytes});
    }

    // Look at what a receive has brought: its length and its type.
    template <class T> TARTAN_DEVICE void take_answer(u64 room) {
        const Answer& answer = state_->answer;
        if (answer.status == IS_TOO_LONG) {
            fail({TOO_LONG, answer.source, answer.tag, answer.bytes, room});
            return;
        }
        bool fits;
        if (answer.flags & IN_LINE) {
            fits = Kind<T>::is(static_cast<char>(answer.flags & 0xFF));
        } else {
            octet* block = slots_.base + answer.address;
            const u32 length = *word(block + 4);
            fits = Kind<T>::is_described(reinterpret_cast<const char*>(block + BLOCK_HEADER_BYTES), length);
            state_->place = answer.address + BLOCK_HEADER_BYTES + rounded(length);
        }
        if (!fits) fail({OTHER_TYPE, answer.source, answer.tag, 0, 0, Kind<T>::name()});
    }

    // What the latest answer says, for all threads.
    TARTAN_DEVICE Status came() const {
        meet_all();
        const Answer& answer = state_->answer;
        return {answer.source, answer.tag, answer.bytes, answer.status == DONE};
    }

    // The same, and the message that came with it.
    template <class T> TARTAN_DEVICE Status taken(T* data) {
        const Status status = came();
        const Answer& answer = state_->answer;
        const bool in_line = answer.flags & IN_LINE;
        if (answer.status == DONE)
            copy_in(data, in_line ? answer.inside : slots_.base + state_->place, answer.bytes);
        meet();
        if (leads() && answer.status == DONE && !in_line) store_release<HEAP>(word(slots_.base + answer.address), 0u);
        return status;
    }

    template <class T> TARTAN_DEVICE void end(u64 op, Request& request) {
        meet();
        if (leads()) {
            Asked request_of = asked(op, 0, 0, 0, 0);
            request_of.address = request.number;
            if (!request.held) {
                fail({FREED});
            } else if (post(request_of) && answered(op, 0, 0) && state_->answer.status != PENDING) {
                if (request.to >= 0)
                    refuse_long(request.to);
                else
                    take_answer<T>(request.room);
            }
        }
        meet_all();
        if (state_->answer.status != PENDING) request.held = false;
    }
};

TARTAN_DEVICE inline Slot Slots::here() const { return Slot(*this); }

}  // namespace tartan
