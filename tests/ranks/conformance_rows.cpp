// The all-to-all and the gather of experts' rows, compared with a list of all rows that is sorted as
// tensor/expert_slots.h says.
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

namespace {

// Rows that a member has received for an expert, in their order; the same on all ranks. The last round has no room for
// all of them.
struct Received {
  std::int64_t expert, member, index;
  auto operator<=>(const Received&) const = default;
};
struct GatherCase {
  static constexpr std::int64_t kRanks = 2, kHeld = 3, kExperts = kRanks * kHeld, kHolder = 1;
  std::vector<Received> rows;
  std::int64_t room = 0;
  Tensor offsets, received, gathered, results, parts;

  GatherCase(Rank& rank, std::uint64_t round, std::int64_t width) {
    const std::int64_t n = rank.size();
    room = round == 2 ? 7 : 2 * kExperts * 9;
    offsets = rank.tensor(DType::i32, n * kRanks * (kExperts + 1)).reshape(n * kRanks, kExperts + 1);
    for (std::int64_t member = 0; member < n; ++member) add(member, round);
    const auto matrix = [&](std::int64_t count) {
      return rank.tensor(DType::f32, count * width).reshape(count, width);
    };
    received = matrix(room), gathered = matrix(n * room), results = matrix(n * room), parts = matrix(n * room);
    std::ranges::sort(rows);
  }
  void add(std::int64_t member, std::uint64_t round) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(kHeld));
    for (std::int64_t i = member * kRanks; i < (member + 1) * kRanks; ++i) {
      std::int32_t* own = offsets.as<std::int32_t>() + i * (kExperts + 1);
      for (std::int64_t e = 0; e < kExperts; ++e) {
        const auto dice = static_cast<std::uint64_t>(i * kExperts + e);
        const auto count = static_cast<std::int32_t>(uniform_below(7, round, dice, 9));
        own[e + 1] = own[e] + count;
        if (e / kHeld == kHolder) counts[static_cast<std::size_t>(e % kHeld)] += count;
      }
    }
    std::int64_t index = 0;
    for (std::int64_t e = 0; e < kHeld; ++e) {
      for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(e)] && index < room; ++i)
        rows.push_back({e, member, index++});
    }
  }
};
float value_of(const Received& row, std::int64_t col) {
  return static_cast<float>(row.member * 10'000 + row.index * 10 + col % 10);
}

}  // namespace

void gathered_rows_of_experts(Rank& rank) {
  const auto stream = rank.stream("rows");
  const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
  const std::int64_t me = rank.rank();
  const auto at = [](const Tensor& x, std::int64_t row, std::int64_t col) -> float& {
    return x.as<float>()[row * x.cols + col];
  };
  // Every member's result of a row differs.
  const auto result_of = [](const Received& row, std::int64_t col, std::int64_t member) {
    return value_of(row, col) + static_cast<float>(1'000'000 * (member + 1));
  };
  std::vector<GatherCase> cases;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (const std::int64_t width : {1, 40}) {
      const GatherCase& c = cases.emplace_back(rank, round, width);
      for (std::int64_t place = 0; place < std::ssize(c.rows); ++place) {
        const Received& row = c.rows[static_cast<std::size_t>(place)];
        for (std::int64_t col = 0; col < width; ++col) {
          if (row.member == me) at(c.received, row.index, col) = value_of(row, col);
          at(c.results, place, col) = result_of(row, col, me);
        }
      }
      Communicator::Gather gather{.offsets = c.offsets, .holder = GatherCase::kHolder, .even_rows = c.gathered.rows};
      for (std::int64_t e = 0; e < (round == 1 ? GatherCase::kHeld : 1); ++e) {
        if (round == 1) gather.range = {.first = e, .count = 1};
        gather.goes_back = false;
        comm->gather_rows(c.gathered, c.received, gather);
        gather.goes_back = true;
        comm->gather_rows(c.parts, c.results, gather);
      }
    }
  }
  stream->synchronize();
  for (const GatherCase& c : cases) {
    for (std::int64_t place = 0; place < std::ssize(c.rows); ++place) {
      const Received& row = c.rows[static_cast<std::size_t>(place)];
      for (std::int64_t col = 0; col < c.gathered.cols; ++col) {
        EXPECT_EQ(at(c.gathered, place, col), value_of(row, col)) << "row " << place;
        for (std::int64_t m = 0; row.member == me && m < rank.size(); ++m)
          EXPECT_EQ(at(c.parts, m * c.room + row.index, col), result_of(row, col, m)) << row.index << " of " << m;
      }
    }
    for (std::int64_t i = std::ssize(c.rows) * c.gathered.cols; i < c.gathered.numel(); ++i)
      ASSERT_EQ(c.gathered.as<float>()[i], 0.0F);
  }
}

}  // namespace ms::comm::cases
