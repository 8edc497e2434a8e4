// Ranks that save, as threads: each holds a share of some parameters, takes steps that change it and carry votes, and
// what lies on disk is compared with what the memory held when a save began.
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
#include "tensor/cpu_device.h"

namespace ms::ckpt::testing {

// A directory of its own, deleted at the end.
class Directory {
 public:
  Directory();
  ~Directory();
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }
  std::vector<std::string> names(const std::string& below = {}) const;  // sorted, but for pin.lock

 private:
  std::string path_;
};

struct Parameter {
  std::string name;
  std::int64_t rows, cols;
};
// Odd shapes, a vector, one element; the shares of 4 and of 8 ranks begin and end in the middle of rows.
inline const std::vector<Parameter> kOdd{
    {"embed.weight", 61, 37}, {"norm.gain", 1, 37}, {"mlp.weight", 13, 101}, {"x", 1, 1}};
// One share of 64 elements has it all.
inline const std::vector<Parameter> kTiny{{"gain", 1, 5}, {"weight", 7, 3}};

class Rank {
 public:
  // Rank r holds part (r + rotate) mod size of the parameters, cut as ZeRO cuts: parts may be empty.
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

  // Gives every element the bits of that version, after whoever still reads the ones before.
  void update(std::uint64_t version);
  // begin() at this boundary; remembers what the next update waits for.
  bool begin(Saver& saver, std::int64_t step);
  // One step's sum over the world: casts votes, then hears the sum of the step before, as a trainer does that issues
  // one step ahead.
  std::optional<SaveOutcome> step(Saver& saver);
  // Steps until an outcome is there; fails the test where none comes.
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

// Runs the body on every rank; what it throws fails the test and stops the others.
struct Setup {
  int ranks = 4;
  std::vector<Parameter> parameters;
  int rotate = 0;
  bool host_apart = false;  // another device, as where the state is on a GPU
  std::function<std::unique_ptr<comm::World>(std::unique_ptr<comm::World>)> wrap = {};  // what ranks see of the world
};
void on_ranks(const Setup& setup, const std::function<void(Rank&)>& body);

// What the ranks saw, by rank.
class Outcomes {
 public:
  explicit Outcomes(int ranks) : seen_(static_cast<std::size_t>(ranks)), at_(seen_.size()) {}
  void add(const Rank& rank, const SaveOutcome& outcome) {
    const std::lock_guard lock(mutex_);
    seen_[static_cast<std::size_t>(rank.rank())].push_back(outcome);
    at_[static_cast<std::size_t>(rank.rank())].push_back(rank.steps());
  }
  // Of the nth save; that it ended at the same step everywhere, the same way, is checked.
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

// "" where the checkpoint is complete, sound, and holds these parameters with the bits of that version; else why not.
std::string problem_with(const std::string& checkpoint, const std::vector<Parameter>& parameters,
                         std::uint64_t version);

}  // namespace ms::ckpt::testing
