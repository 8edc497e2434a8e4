#include "conformance.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <thread>

#include "base/rng.h"
#include "comm/group_ids.h"
#include "mesh/mesh.h"

namespace ms::comm::cases {
namespace {

using namespace std::chrono_literals;
using tensor::DType;
using tensor::Stream;

constexpr std::int64_t kSizes[] = {1, 2, 3, 7, 64, 1000, 2503};
constexpr std::int64_t kLarge = 17011;  // for f32: beyond the one-round limit of all implementations
constexpr DType kSummed[] = {DType::f32, DType::bf16, DType::f64};

float from_bf16(tensor::bfloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
tensor::bfloat16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return {static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

double load(const Tensor& x, std::int64_t i) {
  switch (x.dtype) {
    case DType::f32: return double{x.as<float>()[i]};
    case DType::bf16: return double{from_bf16(x.as<tensor::bfloat16>()[i])};
    case DType::f64: return x.as<double>()[i];
    case DType::i32: return x.as<std::int32_t>()[i];
  }
  return 0;
}
void store(const Tensor& x, std::int64_t i, double value) {
  switch (x.dtype) {
    case DType::f32: x.as<float>()[i] = static_cast<float>(value); break;
    case DType::bf16: x.as<tensor::bfloat16>()[i] = to_bf16(static_cast<float>(value)); break;
    case DType::f64: x.as<double>()[i] = value; break;
    case DType::i32: x.as<std::int32_t>()[i] = static_cast<std::int32_t>(value); break;
  }
}

// Returns element i of rank `rank`'s input of operation `op`: numbers whose sum depends on the order, as the type
// stores them.
double value_of(DType dtype, std::uint64_t op, int rank, std::int64_t i) {
  // A cheap hash of the three: these tests generate millions of numbers.
  std::uint64_t bits =
      (op * 64 + static_cast<std::uint64_t>(rank) + 1) * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(i);
  bits = (bits ^ (bits >> 31)) * 0xBF58476D1CE4E5B9U;
  bits ^= bits >> 29;
  const double wide = (static_cast<double>(bits >> 12) * 0x1p-52 - 0.5) * static_cast<double>(1U << (bits % 12));
  switch (dtype) {
    case DType::f32: return double{static_cast<float>(wide)};
    case DType::bf16: return double{from_bf16(to_bf16(static_cast<float>(wide)))};
    case DType::f64: return wide;
    case DType::i32: return std::floor(wide);
  }
  return 0;
}
void fill(const Tensor& x, std::uint64_t op, int rank, std::int64_t first = 0) {
  for (std::int64_t i = 0; i < x.numel(); ++i) store(x, i, value_of(x.dtype, op, rank, first + i));
}

// Returns the sum or maximum over the members in their order, with the roundings that the contract names.
double reduced(DType dtype, std::uint64_t op, const std::vector<int>& ranks, std::int64_t i,
               ReduceKind kind = ReduceKind::sum) {
  double wide = value_of(dtype, op, ranks[0], i);
  auto narrow = static_cast<float>(wide);
  for (std::size_t k = 1; k < ranks.size(); ++k) {
    const double next = value_of(dtype, op, ranks[k], i);
    wide = kind == ReduceKind::sum ? wide + next : std::max(wide, next);
    narrow = kind == ReduceKind::sum ? narrow + static_cast<float>(next) : std::max(narrow, static_cast<float>(next));
  }
  if (dtype == DType::f64) return wide;
  return double{dtype == DType::bf16 ? from_bf16(to_bf16(narrow)) : narrow};
}

// Compares all elements and reports the first that differs.
template <class Expected>
void expect_elements(const Tensor& x, const std::string& what, Expected&& expected) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double want = expected(i);
    if (load(x, i) != want) {
      ADD_FAILURE() << what << ": element " << i << " of " << x.numel() << " is " << load(x, i) << ", not " << want;
      return;
    }
  }
}

// Delays this rank at random.
void delay_at_random(const Rank& rank, std::uint64_t op) {
  const std::uint64_t dice = random_u64(5, static_cast<std::uint64_t>(rank.rank()), op);
  if (dice % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(dice % 300));
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Every reduction at once: all_reduce; reduce_scatter out of place and in place.
void reductions(Rank& rank) {
  const Group group = rank.all_ranks_group("world");
  const auto stream = rank.stream("reductions");
  const auto comm = rank.world().open(group, *stream);
  struct Case {
    Tensor reduced, part, whole, whole_in_place;
    std::uint64_t op;
    ReduceKind kind;
  };
  std::vector<Case> cases;
  std::uint64_t op = 0;
  const auto issue = [&](DType dtype, std::int64_t size, ReduceKind kind) {
    Case c{rank.tensor(dtype, size),
           rank.tensor(dtype, size),
           rank.tensor(dtype, size * rank.size()),
           rank.tensor(dtype, size * rank.size()),
           ++op,
           kind};
    fill(c.reduced, op, rank.rank());
    fill(c.whole, op, rank.rank());
    fill(c.whole_in_place, op, rank.rank());
    delay_at_random(rank, op);
    comm->all_reduce(c.reduced, kind);
    if (kind == ReduceKind::sum) {
      comm->reduce_scatter(c.part, c.whole);
      comm->reduce_scatter(c.whole_in_place.slice_cols(rank.rank() * size, size), c.whole_in_place);
    }
    cases.push_back(c);
  };
  for (const std::int64_t size : kSizes) {
    for (const DType dtype : kSummed) issue(dtype, size, ReduceKind::sum);
    issue(DType::f32, size, ReduceKind::max);
  }
  issue(DType::f32, kLarge, ReduceKind::sum);
  issue(DType::f32, kLarge, ReduceKind::max);
  stream->synchronize();
  for (const Case& c : cases) {
    const std::int64_t size = c.reduced.numel();
    const DType dtype = c.reduced.dtype;
    const std::string what = fmt::format("{} elements of {}", size, tensor::to_string(dtype));
    expect_elements(c.reduced, "all_reduce " + what,
                    [&](std::int64_t i) { return reduced(dtype, c.op, group.ranks, i, c.kind); });
    if (c.kind != ReduceKind::sum) continue;
    const auto mine = [&](std::int64_t i) { return reduced(dtype, c.op, group.ranks, rank.rank() * size + i); };
    expect_elements(c.part, "reduce_scatter " + what, mine);
    expect_elements(c.whole_in_place.slice_cols(rank.rank() * size, size), "reduce_scatter in place " + what, mine);
  }
}

// Every copying collective at once: all_gather out of place and in place; broadcast from every root.
void copies(Rank& rank) {
  const auto stream = rank.stream("copies");
  const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
  struct Case {
    Tensor part, gathered, in_place, broadcast;
    std::uint64_t op;
    int root;
  };
  std::vector<Case> cases;
  std::uint64_t op = 0;
  for (const std::int64_t size : kSizes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
      Case c{rank.tensor(dtype, size),
             rank.tensor(dtype, size * rank.size()),
             rank.tensor(dtype, size * rank.size()),
             rank.tensor(dtype, size),
             ++op,
             static_cast<int>(op % static_cast<std::uint64_t>(rank.size()))};
      const Tensor own_part = c.in_place.slice_cols(rank.rank() * size, size);
      fill(c.part, op, rank.rank());
      fill(own_part, op, rank.rank());
      fill(c.broadcast, op, rank.rank());
      delay_at_random(rank, op);
      comm->all_gather(c.gathered, c.part);
      comm->all_gather(c.in_place, own_part);
      comm->broadcast(c.broadcast, c.root);
      cases.push_back(c);
    }
  }
  stream->synchronize();
  for (const Case& c : cases) {
    const std::int64_t size = c.part.numel();
    const DType dtype = c.part.dtype;
    const std::string what = fmt::format("{} elements of {}", size, tensor::to_string(dtype));
    const auto gathered = [&](std::int64_t i) { return value_of(dtype, c.op, static_cast<int>(i / size), i % size); };
    expect_elements(c.gathered, "all_gather " + what, gathered);
    expect_elements(c.in_place, "all_gather in place " + what, gathered);
    expect_elements(c.broadcast, "broadcast " + what, [&](std::int64_t i) { return value_of(dtype, c.op, c.root, i); });
  }
}

// Overlapping groups, each on its own stream, with many operations in progress on all of them.
void groups_at_once(Rank& rank) {
  std::vector<std::vector<int>> members{all_ranks(rank.size())};
  for (int half = 0; half < 2; ++half) {  // even and odd ranks; lower and upper half, in descending order
    std::vector<int> parity, side;
    for (int r = rank.size() - 1; r >= 0; --r) {
      if (r % 2 == half) parity.insert(parity.begin(), r);
      if ((2 * r < rank.size()) == (half == 0)) side.push_back(r);
    }
    for (const auto& ranks : {parity, side}) {
      if (!ranks.empty()) members.push_back(ranks);
    }
  }
  struct Member {
    Group group;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> comm;
    std::vector<Tensor> sums, parts, wholes;
  };
  std::vector<Member> mine;
  for (const auto& ranks : members) {
    Group group = rank.group(fmt::format("group of {} with {}", ranks.size(), ranks[0]), ranks);
    if (group.index_of(rank.rank()) < 0) continue;
    mine.push_back({group, rank.stream(group.name), nullptr, {}, {}, {}});
    mine.back().comm = rank.world().open(group, *mine.back().stream);
  }
  constexpr std::uint64_t kRounds = 30;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    for (Member& m : mine) {
      const auto size = static_cast<std::int64_t>(1 + uniform_below(3, 9, round, 4000));
      m.sums.push_back(rank.tensor(DType::f32, size));
      m.parts.push_back(rank.tensor(DType::bf16, size));
      m.wholes.push_back(rank.tensor(DType::bf16, size * m.comm->size()));
      fill(m.sums.back(), round, rank.rank());
      fill(m.parts.back(), round, rank.rank());
      m.comm->all_reduce(m.sums.back());
      m.comm->all_gather(m.wholes.back(), m.parts.back());
    }
    delay_at_random(rank, round);
  }
  for (Member& m : mine) {
    m.stream->synchronize();
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::int64_t size = m.sums[round].numel();
      const std::string what = fmt::format("round {} of {}", round, m.group.name);
      expect_elements(m.sums[round], what,
                      [&](std::int64_t i) { return reduced(DType::f32, round, m.group.ranks, i); });
      expect_elements(m.wholes[round], what, [&](std::int64_t i) {
        return value_of(DType::bf16, round, m.group.ranks[static_cast<std::size_t>(i / size)], i % size);
      });
    }
  }
}

// A ring of two-rank channels, one for each direction: receives posted first cannot block the sends the other way, and
// transfers arrive in order.
void channels(Rank& rank) {
  if (rank.size() == 1) return;
  struct End {
    bool sends;
    int from;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> comm;
    std::vector<Tensor> messages;
  };
  std::vector<End> ends;
  for (int r = 0; r < rank.size(); ++r) {
    const int next = (r + 1) % rank.size();
    for (const auto& [from, to] : {std::pair(r, next), std::pair(next, r)}) {
      const Group group = rank.group(fmt::format("channel {}>{}", from, to), {from, to});
      if (group.index_of(rank.rank()) < 0) continue;
      ends.push_back({rank.rank() == from, from, rank.stream(group.name), nullptr, {}});
      ends.back().comm = rank.world().open(group, *ends.back().stream);
    }
  }
  constexpr std::uint64_t kMessages = 40;
  const auto fill_channel = [&](End& end) {
    for (std::uint64_t k = 0; k < kMessages; ++k) {
      const auto size = static_cast<std::int64_t>(1 + uniform_below(4, 8, k, k % 8 == 0 ? 40000 : 300));
      end.messages.push_back(rank.tensor(DType::f32, size));
      if (end.sends) {
        fill(end.messages.back(), k, rank.rank());
        delay_at_random(rank, k);
        end.comm->send(end.messages.back());
      } else {
        end.comm->recv(end.messages.back());
      }
    }
  };
  for (const bool sends : {false, true}) {
    for (End& end : ends) {
      if (end.sends == sends) fill_channel(end);
    }
  }
  for (End& end : ends) {
    end.stream->synchronize();
    for (std::uint64_t k = 0; k < kMessages; ++k) {
      expect_elements(end.messages[k], fmt::format("transfer {} of {}", k, end.comm->group().name),
                      [&](std::int64_t i) { return value_of(DType::f32, k, end.from, i); });
    }
  }
}

// Communication between computation on other streams, ordered by events only; the race check is on in debug builds.
void events(Rank& rank) {
  const auto stream = rank.stream("comm");
  const auto compute = rank.device().make_stream("compute", tensor::StreamKind::compute);
  const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
  const Tensor x = rank.tensor(DType::f32, 5000), total = rank.tensor(DType::f32, 5000);
  constexpr int kRounds = 20;
  for (int round = 1; round <= kRounds; ++round) {
    compute->submit(tensor::Fill{x, static_cast<float>(round * (rank.rank() + 1))});
    stream->wait(compute->record());
    comm->all_reduce(x);
    compute->wait(stream->record());
    compute->submit(tensor::Add{total, total, x, {}});
  }
  compute->synchronize();
  const double want = 0.5 * kRounds * (kRounds + 1) * 0.5 * rank.size() * (rank.size() + 1);
  expect_elements(total, "total", [&](std::int64_t) { return want; });
}

// Barriers complete, alone and in sequence. Only threads_test.cpp checks that no rank passes one early, which needs
// shared memory.
void barriers(Rank& rank) {
  const auto stream = rank.stream("barriers");
  const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
  for (std::uint64_t round = 0; round < 30; ++round) {
    delay_at_random(rank, round);
    comm->barrier();
    if (round % 10 == 9) stream->synchronize();
  }
  stream->synchronize();
}

// Operations on no elements and in a group of one involve no other rank.
void empty_operations(Rank& rank) {
  const auto stream = rank.stream("empty operations");
  const auto comm = rank.world().open(rank.all_ranks_group("world"), *stream);
  std::vector<Group> alone;
  for (int r = 0; r < rank.size(); ++r) alone.push_back(rank.group("alone", {r}));
  const auto own = rank.world().open(alone[static_cast<std::size_t>(rank.rank())], *stream);
  const Tensor a = rank.tensor(DType::f32, 10), b = rank.tensor(DType::f32, 10), c = rank.tensor(DType::f32, 10);
  fill(a, 1, rank.rank());
  comm->all_reduce(a.slice_cols(0, 0).reshape(1, 0));
  own->barrier();
  own->all_reduce(a);
  own->all_gather(b, a);
  own->reduce_scatter(c, b);
  own->broadcast(c, 0);
  comm->barrier();
  stream->synchronize();
  expect_elements(c, "a copy of a copy", [&](std::int64_t i) { return value_of(DType::f32, 1, rank.rank(), i); });
}

// Published values reach the other ranks, with any bytes, of any size from zero to the limit.
void store_values(Rank& rank) {
  Store& values = rank.world().store();
  const auto value = [](int of, std::size_t size_bytes) {
    std::string bytes(size_bytes, '\0');
    for (std::size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(of));
    return bytes;
  };
  constexpr std::size_t kValueSizes[] = {0, 1, 128, 4000, 16 << 10, kMaxStoreValueBytes};
  for (const std::size_t size : kValueSizes) values.put(fmt::format("size {}", size), value(rank.rank(), size));
  values.commit();
  for (int r = 0; r < rank.size(); ++r) {
    for (const std::size_t size : kValueSizes) {
      EXPECT_EQ(values.get(r, fmt::format("size {}", size), std::chrono::seconds(20)), value(r, size)) << size;
    }
  }
  for (const auto& [key, bytes] : {std::pair<std::string, std::size_t>("too large", kMaxStoreValueBytes + 1),
                                   {std::string("ze\0ro", 5), 1},
                                   {std::string(kMaxStoreKeyBytes + 1, 'k'), 1},
                                   {"", 1}}) {
    EXPECT_THROW(values.put(key, std::string(bytes, 'x')), Error) << key;
  }
}

// A reader waits for values that are not published yet, also after others of the same rank.
void store_waits(Rank& rank) {
  Store& values = rank.world().store();
  const int before = (rank.rank() + rank.size() - 1) % rank.size();
  for (int round = 0; round < 5; ++round) {
    const std::string key = fmt::format("round {}", round);
    // A token travels around the ranks: each waits for the previous one, which publishes a little later.
    if (rank.rank() != 0) values.get(before, key, std::chrono::seconds(20));
    std::this_thread::sleep_for(std::chrono::milliseconds(round == 0 ? 50 : 5));
    values.put(key, fmt::format("{} of rank {}", key, rank.rank()));
    values.commit();
    for (int r = 0; r < rank.size(); ++r) {
      EXPECT_EQ(values.get(r, key, std::chrono::seconds(20)), fmt::format("{} of rank {}", key, r));
    }
  }
}

// The ids of all groups of a mesh: every member gets the id that the first member created, without a barrier.
void store_group_ids(Rank& rank) {
  const int tp = rank.size() % 2 == 0 ? 2 : 1, pp = rank.size() / tp % 2 == 0 ? 2 : 1;
  const mesh::Groups groups(mesh::make_mesh(rank.size() / (tp * pp), pp, tp, rank.size()), pp, true);
  const int first_id = rank.group("the first", {0}).id;
  std::vector<Group> mine;
  for (const mesh::GroupSpec& spec : groups.of(rank.rank()))
    mine.push_back({spec.name, first_id + spec.id, spec.ranks});
  int made = 0;
  const auto make_id = [&] { return fmt::format("{} of rank {}", made++, rank.rank()) + std::string(1, '\0') + "end"; };
  GroupIds ids(rank.world().store(), rank.rank(), {.configuration = 3, .deadline = 20s, .make_id = make_id});
  ids.create(mine);
  std::set<std::string> different;
  for (const Group& group : mine) {
    const std::string& id = ids.of(group);
    EXPECT_NE(id.find(fmt::format(" of rank {}{}end", group.ranks[0], '\0')), std::string::npos) << group.name;
    different.insert(id);
  }
  EXPECT_EQ(different.size(), mine.size());
  rank.start_groups_at(first_id + groups.count());
}

// A value that is never published fails at the deadline, not much later, with the rank and the key.
void store_deadline(Rank& rank) {
  Store& values = rank.world().store();
  values.put("not committed", "a secret");
  for (const auto& [key, owner] :
       {std::pair("not committed", rank.rank()), {"nothing", (rank.rank() + 1) % rank.size()}}) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      values.get(owner, key, std::chrono::milliseconds(80));
      ADD_FAILURE() << "got a value that was not published";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "comm.store");
      EXPECT_EQ(error.blame(), Blame::peer);
      EXPECT_EQ(error.message(), fmt::format("rank {} waited 0.1 s for '{}' from rank {}", rank.rank(), key, owner));
      EXPECT_EQ(error.rank(), owner);
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(waited.count(), 0.08);
    EXPECT_LT(waited.count(), 3.0);
  }
  // Published after a reader has timed out.
  values.commit();
  for (int r = 0; r < rank.size(); ++r) EXPECT_EQ(values.get(r, "not committed", std::chrono::seconds(20)), "a secret");
}

}  // namespace

Group Rank::all_ranks_group(std::string name) { return group(std::move(name), all_ranks(size())); }

Tensor Rank::tensor(DType dtype, std::int64_t numel) {
  memory_.push_back(device_.allocate(static_cast<std::size_t>(numel * tensor::size_of(dtype)), "a test"));
  return {memory_.back()->data(), 1, numel, numel, dtype};
}

const std::vector<Body>& conformance_bodies() {
  static const std::vector<Body> bodies{{"reductions", reductions},
                                        {"copies", copies},
                                        {"rows_of_experts", rows_of_experts},
                                        {"gathered_rows_of_experts", gathered_rows_of_experts},
                                        {"groups_at_once", groups_at_once},
                                        {"channels", channels},
                                        {"events", events},
                                        {"barriers", barriers},
                                        {"empty_operations", empty_operations},
                                        {"store_values", store_values},
                                        {"store_waits", store_waits},
                                        {"store_group_ids", store_group_ids},
                                        {"store_deadline", store_deadline}};
  return bodies;
}

std::optional<Error> failure_of(tensor::Stream& stream) {
  try {
    stream.synchronize();
  } catch (const Error& error) { return error; }
  return std::nullopt;
}

void expect_error(const std::optional<Error>& error, std::string_view kind, std::string_view text) {
  if (!error) {
    ADD_FAILURE() << "no error; expected " << kind << " '" << text << "'";
    return;
  }
  const bool matches = kind.ends_with('.') ? error->kind().starts_with(kind) : error->kind() == kind;
  EXPECT_TRUE(matches) << error->kind() << ", not " << kind << ": " << error->message();
  EXPECT_NE(error->message().find(text), std::string::npos) << error->message();
}

}  // namespace ms::comm::cases
