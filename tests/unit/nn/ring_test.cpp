// What tensor parallelism issues, solved in virtual time on every rank at once: that the rings end for every number of
// ranks although a send completes only when it is matched, that messages lie under products, and, by the race check,
// that events order all that touches the same memory. Streams and communicators here only write down.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "mesh/mesh.h"
#include "nn/tensor_parallel.h"

namespace ms::nn {
namespace {

using tensor::Device;
using tensor::Event;
using tensor::Op;
using tensor::Stream;
using tensor::StreamKind;

// Time of a product of one row block, of its message over a link, of adding and of copying it. Sums of these are exact.
constexpr double kProduct = 1, kAdd = 0.125, kCopy = 0.125;
constexpr std::int64_t kRows = 4, kColumns = 8;  // of a block

struct Item {
  enum class Kind { work, record, wait, meet } kind;
  double seconds = 0;                       // of work; of a message, once all members are there
  std::size_t event = 0;                    // recorded or awaited
  std::pair<int, std::uint64_t> operation;  // group and number
  int members = 0;
};

class Written final : public Device {
 public:
  std::vector<std::vector<Item>> streams;
  std::size_t events = 0;

  Written() { races().enable(true); }
  std::string_view kind() const override { return "written"; }
  std::unique_ptr<Stream> make_stream(std::string name, StreamKind kind) override;
  std::unique_ptr<tensor::Memory> allocate(std::size_t, const std::string&) override { return nullptr; }
  std::unique_ptr<tensor::Memory> allocate_host(std::size_t, const std::string&) override { return nullptr; }
  std::vector<double> op_seconds() const override { return {}; }
};

class WrittenEvent final : public tensor::EventState {
 public:
  explicit WrittenEvent(std::size_t number) : number_(number) {}
  std::size_t number() const { return number_; }
  bool ready() const override { return false; }
  void synchronize() override {}

 private:
  std::size_t number_;
};

class WrittenStream final : public Stream {
 public:
  WrittenStream(Written& device, std::string name, int index) : Stream(device, std::move(name), index), to_(device) {}
  void put(const Item& item) { to_.streams[static_cast<std::size_t>(index())].push_back(item); }

 protected:
  void do_submit(const Op& op) override {
    double seconds = 0;
    if (const auto* product = std::get_if<tensor::Matmul>(&op)) {
      seconds = kProduct * static_cast<double>(product->c.rows) / kRows;
    } else if (std::holds_alternative<tensor::Add>(op)) {
      seconds = kAdd;
    } else if (std::holds_alternative<tensor::Copy>(op)) {
      seconds = kCopy;
    } else if (const auto* fill = std::get_if<tensor::Fill>(&op)) {
      seconds = double{fill->value};  // of a late rank
    }
    put({.kind = Item::Kind::work, .seconds = seconds, .operation = {}});
  }
  std::shared_ptr<tensor::EventState> do_record() override {
    put({.kind = Item::Kind::record, .event = to_.events, .operation = {}});
    return std::make_shared<WrittenEvent>(to_.events++);
  }
  void do_wait(const Event& event) override {
    const auto state = std::dynamic_pointer_cast<WrittenEvent>(event.state());
    put({.kind = Item::Kind::wait, .event = state->number(), .operation = {}});
  }
  void do_trace_next(trace::Ticket) override {}  // nothing is traced
  void do_section(trace::Ticket, bool) override {}

 private:
  Written& to_;
};

std::unique_ptr<Stream> Written::make_stream(std::string name, StreamKind) {
  streams.emplace_back();
  return std::make_unique<WrittenStream>(*this, std::move(name), next_stream_index());
}

// A message takes `block_s` for every block that a member sends.
class WrittenCommunicator final : public comm::Communicator {
 public:
  WrittenCommunicator(const mesh::GroupSpec& group, int rank, WrittenStream& stream, double block_s)
      : Communicator({group.name, group.id, group.ranks}, rank, stream), to_(stream), block_s_(block_s) {}

 protected:
  void do_issue(const comm::Request& request) override {
    const std::int64_t in = request.in.numel(), out = request.out.numel();
    std::int64_t sent = std::max(in, out);
    if (request.kind == comm::OpKind::all_gather) sent = out - in;
    if (request.kind == comm::OpKind::reduce_scatter) sent = in - out;
    if (request.kind == comm::OpKind::all_reduce) sent = 2 * (in - in / size());
    to_.put({.kind = Item::Kind::meet,
             .seconds = block_s_ * static_cast<double>(sent) / (kRows * kColumns),
             .operation = {group().id, request.sequence},
             .members = size()});
  }

 private:
  WrittenStream& to_;
  double block_s_;
};

struct Setting {
  int tp;
  bool sequence_parallel, overlap;
  double block_s;
};

// A tp rank with what a layer's products need.
class Rank {
 public:
  Rank(const Setting& setting, int rank)
      : setting_(setting),
        groups_({.dp = 1, .pp = 1, .tp = setting.tp}, 1, false),
        compute_(stream("compute")),
        tp_(groups_.along(mesh::Axis::tp, rank), rank, *(tp_stream_ = stream("tp")), setting.block_s),
        out_(groups_.tp_ring(rank)->out, rank, *(out_stream_ = stream("out")), setting.block_s),
        in_(groups_.tp_ring(rank)->in, rank, *(in_stream_ = stream("in")), setting.block_s) {
    model_.hidden = kColumns;
    model_.seq = kRows * setting.tp;
    shape_.model = &model_;
    shape_.batch = 1;
    shape_.tp = setting.tp;
    shape_.tp_rank = rank;
    shape_.sequence_parallel = setting.sequence_parallel;
    Arena arena = Arena::measuring();
    const auto take = [&](std::int64_t rows) { return arena.take(DType::f32, rows, kColumns); };
    const std::int64_t all = shape_.tokens(), own = shape_.shard_tokens();
    x = take(own), into = take(all), again = take(all), c = take(all), partial = take(all), reduced = take(own);
    weight = take(kColumns), gradient = take(kColumns), received_ = take(own);
    ring_.emplace(Ring{out_, in_, received_, rank, setting.tp});
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  TensorParallel on() { return {*compute_, tp_, shape_, setting_.overlap, &*ring_}; }
  const Written& written() const { return device_; }

  Tensor x, into, again, c, partial, reduced, weight, gradient;

 private:
  std::unique_ptr<WrittenStream> stream(const std::string& name) {
    return std::unique_ptr<WrittenStream>(
        dynamic_cast<WrittenStream*>(device_.make_stream(name, StreamKind::comm).release()));
  }

  Setting setting_;
  mesh::Groups groups_;
  Written device_;
  std::unique_ptr<WrittenStream> compute_, tp_stream_, out_stream_, in_stream_;
  WrittenCommunicator tp_, out_, in_;
  ModelConfig model_;
  Shape shape_;
  Tensor received_;
  std::optional<Ring> ring_;
};

// Issues on every rank and solves: when the last compute stream is through. A stream that can never go on fails the
// test.
double time_of(const Setting& setting, const std::function<void(Rank&, int)>& issue) {
  struct Cursor {
    std::size_t rank, stream, next = 0;
    double now = 0;
    bool joined = false;
  };
  struct Meeting {
    int arrived = 0;
    double last = 0;
  };
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<Cursor> cursors;
  for (int r = 0; r < setting.tp; ++r) {
    ranks.push_back(std::make_unique<Rank>(setting, r));
    issue(*ranks.back(), r);
    for (std::size_t s = 0; s < ranks.back()->written().streams.size(); ++s) {
      cursors.push_back({.rank = ranks.size() - 1, .stream = s});
    }
  }
  std::map<std::pair<std::size_t, std::size_t>, double> events;
  std::map<std::pair<int, std::uint64_t>, Meeting> meetings;
  const auto advance = [&](Cursor& at, const Item& item) {
    switch (item.kind) {
      case Item::Kind::work:
        at.now += item.seconds;
        return true;
      case Item::Kind::record:
        events[{at.rank, item.event}] = at.now;
        return true;
      case Item::Kind::wait: {
        const auto event = events.find({at.rank, item.event});
        if (event == events.end()) return false;
        at.now = std::max(at.now, event->second);
        return true;
      }
      case Item::Kind::meet: {
        Meeting& meeting = meetings[item.operation];
        if (!at.joined) {
          ++meeting.arrived;
          meeting.last = std::max(meeting.last, at.now);
          at.joined = true;
        }
        if (meeting.arrived < item.members) return false;
        at.now = meeting.last + item.seconds;
        at.joined = false;
        return true;
      }
    }
    return false;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (Cursor& at : cursors) {
      const std::vector<Item>& items = ranks[at.rank]->written().streams[at.stream];
      while (at.next < items.size() && advance(at, items[at.next])) ++at.next, moved = true;
    }
  }
  double last = 0;
  for (const Cursor& at : cursors) {
    EXPECT_EQ(at.next, ranks[at.rank]->written().streams[at.stream].size())
        << "rank " << at.rank << ", stream " << at.stream << " of " << setting.tp << " ranks never goes on";
    if (at.stream == 0) last = std::max(last, at.now);
  }
  return last;
}

void gather(Rank& rank, int) { rank.on().gather_product(rank.c, rank.x, rank.into, rank.weight, {}, true); }
void reduce(Rank& rank, int) {
  const TensorParallel on = rank.on();
  on.arrived(on.product_reduce(rank.partial, rank.reduced, rank.c, rank.weight, true));
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Tp, Ranks, testing::Values(2, 3, 4, 8));

TEST_P(Ranks, GatherLiesUnderTheProduct) {
  const int tp = GetParam();
  EXPECT_EQ(time_of({tp, true, false, 0.5}, gather), (tp - 1) * 0.5 + tp * kProduct);
  EXPECT_EQ(time_of({tp, true, true, 0.5}, gather), tp * kProduct);
  // Where messages take longer, the products lie under them.
  EXPECT_EQ(time_of({tp, true, true, 3}, gather), (tp - 1) * 3 + kProduct);
}

TEST_P(Ranks, ReductionLiesUnderTheProduct) {
  const int tp = GetParam();
  EXPECT_EQ(time_of({tp, true, false, 0.5}, reduce), tp * kProduct + (tp - 1) * 0.5);
  EXPECT_EQ(time_of({tp, true, true, 0.5}, reduce), tp * kProduct + kAdd);
  EXPECT_EQ(time_of({tp, true, true, 3}, reduce), kProduct + (tp - 1) * (3 + kAdd));
  // Without sequence parallelism a quarter of the message is left.
  const double message = 2 * (tp - 1) * 0.25;
  EXPECT_EQ(time_of({tp, false, false, 0.25}, reduce), tp * kProduct + message);
  EXPECT_EQ(time_of({tp, false, true, 0.25}, reduce), tp * kProduct + message / 4);
}

// A layer's backward: the input gathered again under the product, the product's result reduced under the gradient of
// the weight.
void backward(Rank& rank, int) {
  const TensorParallel on = rank.on();
  on.gather_product(rank.c, rank.x, rank.into, rank.weight, {}, false);
  const Arriving again = on.gather(rank.x, rank.again);
  const Arriving dx = on.product_reduce(rank.partial, rank.reduced, rank.c, rank.weight, false);
  const auto weight_gradient = [&](const Tensor& input) {
    on.compute.submit(tensor::Matmul{rank.gradient, rank.c, input, {}, true, false, true});
  };
  weight_gradient(rank.into);
  weight_gradient(on.arrived(again));
  const Tensor sum = on.arrived(dx);
  on.compute.submit(tensor::Add{rank.x, rank.x, sum, {}});
}

TEST_P(Ranks, BackwardHasNothingToWaitFor) {
  const int tp = GetParam();
  const double compute = 2 * tp * kProduct + 2 * kProduct * kColumns / kRows + kAdd;
  EXPECT_EQ(time_of({tp, true, true, 0.5}, backward), compute);
  EXPECT_EQ(time_of({tp, true, false, 0.5}, backward), compute + 3 * (tp - 1) * 0.5);
}

// Layer after layer in the same memory, ranks late by different times, every combination: all end, nothing races.
TEST_P(Ranks, LateRanksStopNobody) {
  for (const bool sequence_parallel : {true, false}) {
    for (const bool overlap : {true, false}) {
      for (const double block_s : {0.0, 0.5, 3.0}) {
        for (int late = 0; late < GetParam(); ++late) {
          time_of({GetParam(), sequence_parallel, overlap, block_s}, [&](Rank& rank, int r) {
            for (int layer = 0; layer < 3; ++layer) {
              if (r == (late + layer) % GetParam()) rank.on().compute.submit(tensor::Fill{rank.x, 7.5F});
              gather(rank, r);
              reduce(rank, r);
              reduce(rank, r);
              backward(rank, r);
            }
          });
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::nn
