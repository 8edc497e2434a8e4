// Ranks that save, as threads: each holds a share of some parameters and takes steps that change it and carry votes.
// The files are compared with the memory at the beginning of the save.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/saver.h"
#include "comm/thread_world.h"
#include "support/files.h"
#include "tensor/cpu_device.h"

namespace ms::ckpt::testing {

// A temporary directory, deleted at the end.
class Directory {
 public:
  const std::string& path() const { return temporary_.path(); }
  std::vector<std::string> names(const std::string& below = {}) const;  // sorted, without pin.lock

 private:
  test::TempDir temporary_;
};

struct Parameter {
  std::string name;
  std::int64_t rows, cols;
};
// Odd shapes, a vector, one element; the shares of 4 and of 8 ranks begin and end in the middle of rows.
inline const std::vector<Parameter> kOdd{
    {"embed.weight", 61, 37}, {"norm.gain", 1, 37}, {"mlp.weight", 13, 101}, {"x", 1, 1}};
// One share of 64 elements holds all of it.
inline const std::vector<Parameter> kTiny{{"gain", 1, 5}, {"weight", 7, 3}};

class Rank {
 public:
  // Rank r holds part (r + rotate) mod size of the parameters, sharded as ZeRO does: parts may be empty.
  Rank(comm::World& world, tensor::Device& device, tensor::Device& host, const std::vector<Parameter>& parameters,
       int rotate);

  int rank() const { return world_.rank(); }
  comm::World& world() const { return world_; }
  tensor::CpuStream& compute() const { return dynamic_cast<tensor::CpuStream&>(*compute_); }
  const std::vector<Held>& held() const { return held_; }
  tensor::Device& device() const { return device_; }
  tensor::Device& host() const { return host_; }
  std::unique_ptr<Saver> open(SaverOptions options, std::unique_ptr<MemoryTier> memory = nullptr);
  void barrier();

  // Sets every element to the bits of that version, after readers of the previous version are done.
  void update(std::uint64_t version);
  // Calls begin() at this step boundary; stores the event that the next update waits for.
  bool begin(Saver& saver, std::int64_t step);
  // One step's sum over the world: casts votes, then passes on the sum of the previous step, like a trainer that issues
  // one step ahead.
  std::optional<SaveOutcome> step(Saver& saver);
  // Takes steps until there is an outcome; fails the test if there is none.
  SaveOutcome outcome(Saver& saver);
  std::int64_t steps() const { return steps_; }

 private:
  struct Sum {
    std::array<double, 3> votes{};
    tensor::Event done;
  };
  comm::World& world_;
  tensor::Device &device_, &host_;
  std::unique_ptr<tensor::Memory> memory_;
  std::vector<Held> held_;
  std::array<Sum, 2> sums_;
  std::unique_ptr<tensor::Stream> compute_, sum_stream_;
  std::unique_ptr<comm::Communicator> everyone_;
  tensor::Event copied_;
  std::int64_t steps_ = 0;  // cast
  int next_group_ = 100;
};

// Runs the body on every rank; an exception fails the test and stops the others.
struct Setup {
  int ranks = 4;
  std::vector<Parameter> parameters;
  int rotate = 0;
  bool host_apart = false;  // a separate device, as with state on a GPU
  std::function<std::unique_ptr<comm::World>(std::unique_ptr<comm::World>)> wrap = {};  // wraps each rank's world
};
void on_ranks(const Setup& setup, const std::function<void(Rank&)>& body);

// The outcomes that the ranks saw, by rank.
class Outcomes {
 public:
  explicit Outcomes(int ranks) : seen_(static_cast<std::size_t>(ranks)), at_(seen_.size()) {}
  void add(const Rank& rank, const SaveOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    seen_[static_cast<std::size_t>(rank.rank())].push_back(outcome);
    at_[static_cast<std::size_t>(rank.rank())].push_back(rank.steps());
  }
  // Returns the outcome of the nth save; checks that it ended at the same step and the same way on all ranks.
  const SaveOutcome& of(std::size_t n, int rank = 0) const {
    for (std::size_t r = 0; r < seen_.size(); ++r) {
      EXPECT_EQ(at_[r].at(n), at_[0].at(n)) << "rank " << r;
      EXPECT_EQ(seen_[r].at(n).step, seen_[0].at(n).step) << "rank " << r;
      EXPECT_EQ(seen_[r].at(n).committed, seen_[0].at(n).committed) << "rank " << r;
    }
    return seen_[static_cast<std::size_t>(rank)].at(n);
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<SaveOutcome>> seen_;
  std::vector<std::vector<std::int64_t>> at_;
};

// Returns "" if the checkpoint is complete, valid, and holds these parameters with the bits of that version, else the
// reason.
std::string problem_with(const std::string& checkpoint, const std::vector<Parameter>& parameters,
                         std::uint64_t version);

}  // namespace ms::ckpt::testing
