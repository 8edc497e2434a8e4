// Where the rows of experts lie when ranks share the experts. Pure.
//
// Every one of n ranks has slots of its own for its tokens, by expert (tensor/expert_ops.h), and holds E / n of the
// experts: rank m those from m E / n on. The rows of an expert's slots, of all ranks, lie where the expert is held:
// those of its holder's first expert come first, and those of one expert by rank. Rows for which there is no room,
// the last ones, are dropped.
//
// Holders may be groups of ranks that hold the same experts, or shards of them. Each member then receives rows as
// above, for its share of all tokens, and the members gather what they received.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tensor/tensor.h"

namespace ms::tensor {

// Some of the experts that a rank holds; without a count, all of them.
struct ExpertRange {
  std::int64_t first = 0, count = 0;
  std::int64_t end(std::int64_t held) const { return count == 0 ? held : first + count; }
  std::int64_t of(std::int64_t held) const { return end(held) - first; }
  // Returns the rows of x, which has those of all `held` experts, that stand for the range's where memory accesses and
  // bytes are counted: as if every expert had as many. Where they really are is known when it is used.
  Tensor rows_of(const Tensor& x, std::int64_t held) const {
    const std::int64_t begin = x.rows * first / held;
    return x.slice_rows(begin, x.rows * end(held) / held - begin);
  }
};

class ExpertSlots {
 public:
  // `offsets` [ranks,experts+1]: Route::offsets of every rank, which outlives this. `room`: the rows of a holder.
  ExpertSlots(const std::int32_t* offsets, std::int64_t ranks, std::int64_t experts, std::int64_t room)
      : offsets_(offsets), ranks_(ranks), experts_(experts), room_(room) {}

  std::int64_t ranks() const { return ranks_; }
  std::int64_t held() const { return experts_ / ranks_; }  // experts of a rank
  // Returns the first of a rank's own slots for an expert, and how many there are.
  std::int64_t own(std::int64_t rank, std::int64_t expert) const { return offsets_[rank * (experts_ + 1) + expert]; }
  std::int64_t count(std::int64_t rank, std::int64_t expert) const { return own(rank, expert + 1) - own(rank, expert); }
  // Returns the first row that the holder of an expert has for it, or, one expert further, the end of its rows.
  std::int64_t first_row(std::int64_t holder, std::int64_t expert) const {
    std::int64_t row = 0;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) row += own(rank, expert) - own(rank, holder * held());
    return std::min(row, room_);
  }

  // Returns where a holder's rows for the experts of a range begin and end.
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t holder, ExpertRange range) const {
    const std::int64_t first = holder * held();
    return {first_row(holder, first + range.first), first_row(holder, first + range.end(held()))};
  }

  // Calls f(own, row, count) for every expert of a range of `holder`'s of which `rank` has slots: the first of its own
  // slots, the first of the holder's rows for them.
  template <class F>
  void each_part(std::int64_t rank, std::int64_t holder, ExpertRange range, F&& f) const {
    const std::int64_t begin = holder * held();
    for (std::int64_t expert = begin + range.first; expert < begin + range.end(held()); ++expert) {
      std::int64_t row = first_row(holder, expert);
      for (std::int64_t before = 0; before < rank; ++before) row += count(before, expert);
      if (const std::int64_t rows = std::min(count(rank, expert), room_ - row); rows > 0)
        f(own(rank, expert), row, rows);
    }
  }

 private:
  const std::int32_t* offsets_;
  std::int64_t ranks_, experts_, room_;
};

// The rows of a holder's experts that its `members` gather: by expert, and those of one expert by member.
class GatheredSlots {
 public:
  // `offsets` [members ranks,experts+1]: those of ExpertSlots of every member, one's below another's. `room`: the rows
  // of a member before they are gathered.
  GatheredSlots(const std::int32_t* offsets, std::int64_t members, std::int64_t ranks, std::int64_t experts,
                std::int64_t room)
      : offsets_(offsets), members_(members), ranks_(ranks), experts_(experts), room_(room) {}

  ExpertSlots of(std::int64_t member) const {
    return {offsets_ + member * ranks_ * (experts_ + 1), ranks_, experts_, room_};
  }
  // Returns where the rows for one of a holder's experts begin and end.
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t holder, std::int64_t expert) const {
    std::pair<std::int64_t, std::int64_t> rows{0, 0};
    for (std::int64_t member = 0; member < members_; ++member) {
      const auto [begin, end] = of(member).rows_of(holder, {expert, 1});
      rows.first += begin, rows.second += end;
    }
    return rows;
  }
  // Calls f(received, row, count) for every expert of a range of `holder`'s of which `member` has received rows: the
  // first of these, the first of the gathered rows for them.
  template <class F>
  void each_part(std::int64_t member, std::int64_t holder, ExpertRange range, F&& f) const {
    const std::int64_t held = experts_ / ranks_;
    for (std::int64_t expert = range.first; expert < range.end(held); ++expert) {
      const ExpertRange one{expert, 1};
      std::int64_t row = rows_of(holder, expert).first;
      for (std::int64_t before = 0; before < member; ++before) {
        const auto [begin, end] = of(before).rows_of(holder, one);
        row += end - begin;
      }
      if (const auto [begin, end] = of(member).rows_of(holder, one); end > begin) f(begin, row, end - begin);
    }
  }

 private:
  const std::int32_t* offsets_;
  std::int64_t members_, ranks_, experts_, room_;
};

}  // namespace ms::tensor
