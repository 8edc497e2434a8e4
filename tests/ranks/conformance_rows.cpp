// The all-to-all of experts' rows, compared with a list of all rows that is sorted as tensor/expert_slots.h says.
#include <algorithm>

#include "base/rng.h"
#include "conformance.h"

namespace ms::comm::cases {
namespace {

using tensor::DType;

struct Row {
  std::int64_t expert, owner, slot;
  auto operator<=>(const Row&) const = default;
};
// A number that tells a row's owner, slot and column.
float value_of(const Row& row, std::int64_t col) {
  return static_cast<float>(row.owner * 100'000 + row.slot * 10 + col % 10);
}

// Who has chosen which expert, with none, one and all of the tokens for some: the same on all ranks.
std::vector<Row> all_rows(int size, std::int64_t experts, std::int64_t slots, std::uint64_t round) {
  std::vector<Row> rows;
  for (int owner = 0; owner < size; ++owner) {
    std::vector<std::int64_t> chosen;
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const auto dice = static_cast<std::uint64_t>(owner * slots + slot);
      const auto any = static_cast<std::int64_t>(uniform_below(7, round, dice, static_cast<std::uint64_t>(experts)));
      chosen.push_back(round == 1 ? experts - 1 : round == 2 ? any / 2 : any);
    }
    std::ranges::sort(chosen);
    for (std::int64_t slot = 0; slot < slots; ++slot)
      rows.push_back({chosen[static_cast<std::size_t>(slot)], owner, slot});
  }
  std::ranges::sort(rows);
  return rows;
}

}  // namespace

void rows_of_experts(Rank& rank) {
  const auto stream = rank.stream("rows");
  const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
  const std::int64_t n = rank.size(), experts = 3 * n, me = rank.rank();
  struct Case {
    std::vector<Row> rows;
    Tensor own, held, back;
  };
  std::vector<Case> cases;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (const std::int64_t width : {1, 40}) {
      for (const std::int64_t slots : {5, 300}) {
        const auto matrix = [&](std::int64_t rows) {
          return rank.tensor(DType::f32, rows * width).reshape(rows, width);
        };
        Case c{all_rows(rank.size(), experts, slots, round), matrix(slots), matrix(n * slots), matrix(slots)};
        const Tensor offsets = rank.tensor(DType::i32, n * (experts + 1)).reshape(n, experts + 1);
        for (const Row& row : c.rows) {
          for (std::int64_t e = row.expert; e < experts; ++e)
            ++offsets.as<std::int32_t>()[row.owner * (experts + 1) + e + 1];
          if (row.owner != me) continue;
          for (std::int64_t col = 0; col < width; ++col) c.own.as<float>()[row.slot * width + col] = value_of(row, col);
        }
        if (round == 2) c.held = c.held.slice_rows(0, slots);  // room for an even share
        comm->all_to_all(c.held, c.own, offsets, false);
        if (round == 0) {
          for (std::int64_t e = 0; e < 3; ++e)
            comm->all_to_all(c.back, c.held, offsets, true, {.first = e, .count = 1});
        } else {
          comm->all_to_all(c.back, c.held, offsets, true);
        }
        cases.push_back(std::move(c));
      }
    }
  }
  stream->synchronize();
  for (const Case& c : cases) {
    std::vector<std::int64_t> places(static_cast<std::size_t>(n));  // by holder
    for (const Row& row : c.rows) {
      const std::int64_t place = places[static_cast<std::size_t>(row.expert / 3)]++;
      const bool has_room = place < c.held.rows;
      for (std::int64_t col = 0; col < c.held.cols; ++col) {
        const float value = has_room ? value_of(row, col) : 0.0F;
        const auto at = [&](const Tensor& x, std::int64_t r) { return x.as<float>()[r * x.cols + col]; };
        EXPECT_TRUE(row.expert / 3 != me || !has_room || at(c.held, place) == value) << "row " << place;
        EXPECT_TRUE(row.owner != me || at(c.back, row.slot) == value) << "slot " << row.slot;
      }
    }
    for (std::int64_t i = places[static_cast<std::size_t>(me)] * c.held.cols; i < c.held.numel(); ++i)
      ASSERT_EQ(c.held.as<float>()[i], 0.0F);
  }
}

}  // namespace ms::comm::cases
