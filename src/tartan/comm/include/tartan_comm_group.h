// How slots take part in collectives: contributions in the window of all ranks, and meetings that the proxy counts.
#pragma once

#include "tartan_comm_lines.h"

namespace tartan {

// What a collective is called, as all ranks write it.
struct Call {
    const char* name;           // "gather"
    const char* way = nullptr;  // "to"
    int root = 0;
    const char* type = nullptr;
    u64 items = 0;
    bool of_rows = false;  // the ranks may give unequal numbers of items

    TARTAN_CALLED void write(Text& text) const {
        text.add(name);
        if (way) text.add(" ").add(way).add(" ").add(static_cast<u64>(root));
        if (!type) return;
        text.add(" of ").add(type);
        if (of_rows)
            text.add(" ()");
        else
            text.add(" (").add(items).add(",)");
    }
};

class SlotGroup : public SlotLines {
  protected:
    TARTAN_DEVICE explicit SlotGroup(const Slots& slots) : SlotLines(slots) {}

    // Exchange contributions; afterwards `place_of` says where they lie, in the half of this turn (R8).
    TARTAN_DEVICE void exchange(const Call& call, const void* data, u64 bytes) {
        octet* place = begin_exchange(call, bytes);
        copy_out(place, data, bytes);
        end_exchange(call);
    }

    // The same in two steps: say how long the contribution is, and return where to write it; then meet.
    TARTAN_CALLED octet* begin_exchange(const Call& call, u64 bytes) {
        meet();
        if (leads()) state_->turn++;
        meet();
        if (leads()) {
            write_header(call, bytes);
            if (bytes > SMALL_BYTES && arrive(call, 0)) survey();
        }
        meet_all();
        return bytes > SMALL_BYTES ? slots_.window + state_->place : small(self());
    }
    TARTAN_CALLED void end_exchange(const Call& call) {
        meet();
        const bool is_small = bytes_of(self()) <= SMALL_BYTES;
        if (leads() && is_small && arrive(call, 0)) survey();
        meet_all();
        if (!state_->joined) return;
        if (is_small) copy(slots_.window + state_->place, small(self()), bytes_of(self()), thread(), threads());
        meet();
        if (leads()) arrive(call, 1);
        meet_all();
    }

    // Where the contribution of a rank lies, and how long it is.
    TARTAN_CALLED octet* place_of(u32 member) const {
        if (!state_->joined) return small(member);
        octet* place = results();
        for (u32 before = 0; before < member; before++) place += bytes_of(before);
        return place;
    }
    TARTAN_DEVICE u64 bytes_of(u32 member) const { return *reinterpret_cast<const u64*>(header(member) + 8); }
    TARTAN_CALLED u64 all_bytes() const {
        u64 sum = 0;
        for (u32 member = 0; member < slots_.size; member++) sum += bytes_of(member);
        return sum;
    }
    // Room behind joined contributions for a result that the ranks of a node share; null where there is not enough.
    TARTAN_DEVICE octet* room_behind(u64 bytes) const {
        if (!state_->joined) return nullptr;
        const u64 used = rounded(static_cast<u64>(place_of(slots_.size) - results()));
        return used <= slots_.half && bytes <= slots_.half - used ? results() + used : nullptr;
    }
    TARTAN_DEVICE octet* results() const { return slots_.window + slots_.results + half() * slots_.half; }
    TARTAN_DEVICE u32 self() const { return slots_.rank + number_; }

    // Thread 0: meet the other ranks; false where all waits were ended.
    TARTAN_CALLED bool arrive(const Call& call, int phase) {
        const u32 round = ++state_->round;
        Asked request = asked(ARRIVE, 0, static_cast<int>(half()), phase, round);
        if (!post(request)) return false;
        const u32* released = word(slots_.window + RELEASE_AT);
        return come([=] { return load_acquire<R8>(released) == round; },
                    [&] {
                        Text text;
                        call.write(text);
                        describe(IN_GROUP, 0, 0, 0, RELEASE_AT, round - 1, &text);
                    });
    }

  private:
    TARTAN_DEVICE u64 half() const { return state_->turn % 2; }
    TARTAN_DEVICE octet* header(u32 member) const {
        return slots_.window + slots_.headers + (half() * slots_.size + member) * HEADER_BYTES;
    }
    TARTAN_DEVICE octet* small(u32 member) const {
        return slots_.window + slots_.smalls + (half() * slots_.size + member) * SMALL_BYTES;
    }

    TARTAN_CALLED void write_header(const Call& call, u64 bytes) {
        Text text;
        call.write(text);
        octet* mine = header(self());
        reinterpret_cast<u64*>(mine)[0] = state_->turn;
        reinterpret_cast<u64*>(mine)[1] = bytes;
        for (u32 at = 0; at < SIGNATURE_BYTES; at++)
            mine[16 + at] = at < text.length ? static_cast<octet>(text.text[at]) : 0;
    }

    // Look whether all call the same, and whether all is there already.
    TARTAN_CALLED void survey() {
        const octet* mine = header(self());
        u64 sum = 0, before = 0;
        bool all_small = true;
        for (u32 member = 0; member < slots_.size; member++) {
            const octet* other = header(member);
            for (u32 at = 0; at < HEADER_BYTES; at++)
                if ((at < 8 || at >= 16) && other[at] != mine[at]) {
                    fail({MISMATCH, static_cast<int>(half())});
                    return;
                }
            if (member == self()) before = sum;
            all_small = all_small && bytes_of(member) <= SMALL_BYTES;
            sum += bytes_of(member);
        }
        state_->joined = !all_small;
        state_->place = static_cast<u64>(results() - slots_.window) + before;
        if (!all_small && sum > slots_.half) fail({NO_ROOM, 0, 0, sum});
    }
};

}  // namespace tartan
