#include "saver_case.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/hash.h"
#include "ckpt/directory.h"
#include "ckpt/load.h"
#include "support/files.h"
#include "support/zero_pieces.h"

namespace ms::ckpt::testing {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using tensor::DType;
using tensor::Tensor;

namespace {

constexpr std::array<std::pair<State, DType>, 4> kHeld{{{State::weight, DType::bf16},
                                                        {State::master, DType::f32},
                                                        {State::exp_avg, DType::f32},
                                                        {State::exp_avg_sq, DType::f32}}};

// Returns the bits of one element, different for every version, state, parameter and index; any pattern, NaNs included.
std::uint32_t bits(std::uint64_t version, State state, std::uint64_t name, std::int64_t element) {
  std::uint64_t x = name + version * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(state) * 0xD1B54A32D192ED03 +
                    static_cast<std::uint64_t>(element) * 0x8CB92BA72F3D8DD7;
  x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9;
  return static_cast<std::uint32_t>(x >> 29);
}

void fill(const Piece& piece, std::uint64_t version, std::byte* to) {
  const std::uint64_t name = std::hash<std::string>()(piece.slice.name);
  for (std::int64_t i = 0; i < piece.slice.size(); ++i) {
    const std::uint32_t value = bits(version, piece.state, name, piece.slice.elements.begin + i);
    std::memcpy(to + i * tensor::size_of(piece.dtype), &value, static_cast<std::size_t>(tensor::size_of(piece.dtype)));
  }
}

}  // namespace

std::vector<std::string> Directory::names(const std::string& below) const {
  std::vector<std::string> names = test::names_in(temporary_ / below);
  std::erase(names, "pin.lock");
  return names;
}

Rank::Rank(comm::World& world, tensor::Device& device, tensor::Device& host, const std::vector<Parameter>& parameters,
           int rotate)
    : world_(world), device_(device), host_(host) {
  std::vector<std::int64_t> sizes;
  for (const Parameter& parameter : parameters) sizes.push_back(parameter.rows * parameter.cols);
  const std::vector<test::ZeroPiece> own =
      test::zero_pieces(sizes, world.size(), (world.rank() + rotate) % world.size());
  std::int64_t bytes = 0;
  for (const auto& [state, dtype] : kHeld) {
    for (const test::ZeroPiece& part : own) {
      const Parameter& parameter = parameters[part.index];
      Piece piece{state, dtype, whole(parameter.name, parameter.rows, parameter.cols)};
      piece.slice.elements = part.elements;
      held_.push_back({piece, {}});
      bytes += piece.size_bytes() + tensor::Arena::kAlignment;
    }
  }
  memory_ = device.allocate(static_cast<std::size_t>(bytes), "the test's state");
  tensor::Arena arena(*memory_);
  for (Held& h : held_) h.tensor = arena.take(h.piece.dtype, 1, h.piece.slice.size());
  compute_ = device.make_stream("compute", tensor::StreamKind::compute);
  sum_stream_ = device.make_stream("sum", tensor::StreamKind::comm);
  comm::Group group{"world", 1, std::vector<int>(static_cast<std::size_t>(world.size()))};
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  everyone_ = world.open(group, *sum_stream_);
}

std::unique_ptr<Saver> Rank::open(SaverOptions options, std::unique_ptr<MemoryTier> memory) {
  options.group_id = next_group_++;
  return std::make_unique<Saver>(options, held_, world_, device_, host_, std::move(memory));
}

void Rank::barrier() {
  everyone_->barrier();
  sum_stream_->synchronize();
}

void Rank::update(std::uint64_t version) {
  if (copied_) compute_->wait(copied_);
  for (const Held& h : held_) compute_->note(tensor::Access::write, h.tensor);
  compute().call([this, version] {
    for (const Held& h : held_) fill(h.piece, version, h.tensor.data);
  });
}

bool Rank::begin(Saver& saver, std::int64_t step) {
  Manifest manifest;
  manifest.step = step;
  manifest.run = "0123456789abcdef";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "0";
  manifest.dp = world_.size();
  manifest.dtype = "bf16";
  const std::optional<tensor::Event> copied = saver.begin(manifest, compute_->record(), steps_ - 1);
  if (copied) copied_ = *copied;
  return copied.has_value();
}

std::optional<SaveOutcome> Rank::step(Saver& saver) {
  Sum& mine = sums_[static_cast<std::size_t>(steps_ % 2)];
  const SaveVotes votes = saver.votes();
  mine.votes = {votes.writing, votes.committing, votes.failed};
  everyone_->all_reduce({reinterpret_cast<std::byte*>(mine.votes.data()), 1, 3, 3, DType::f64});
  mine.done = sum_stream_->record();
  if (steps_++ == 0) return std::nullopt;
  const Sum& before = sums_[static_cast<std::size_t>(steps_ % 2)];
  before.done.synchronize();
  return saver.agreed(steps_ - 2, {before.votes[0], before.votes[1], before.votes[2]});
}

SaveOutcome Rank::outcome(Saver& saver) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  // One rank's clock decides for all: they must take the same number of steps.
  for (bool late = false; !late;) {
    if (std::optional<SaveOutcome> outcome = step(saver)) return *outcome;
    double votes_late = rank() == 0 && std::chrono::steady_clock::now() > deadline ? 1 : 0;
    everyone_->all_reduce({reinterpret_cast<std::byte*>(&votes_late), 1, 1, 1, DType::f64});
    sum_stream_->synchronize();
    late = votes_late > 0;
  }
  throw Error("test", Blame::bug, "a save that does not end");
}

void on_ranks(const Setup& setup, const std::function<void(Rank&)>& body) {
  tensor::CpuPool pool(tensor::CpuPool::size_for(2, setup.ranks, setup.ranks));
  tensor::MatmulCache matmuls;
  comm::ThreadHub hub(setup.ranks, 60s);
  std::vector<std::jthread> threads;
  for (int r = 0; r < setup.ranks; ++r) {
    threads.emplace_back([&, r] {
      std::unique_ptr<comm::World> world = hub.world(r);
      if (setup.wrap) world = setup.wrap(std::move(world));
      tensor::CpuDevice device(pool, matmuls), host(pool, matmuls);
      device.races().enable(true);
      host.races().enable(true);
      Rank rank(*world, device, setup.host_apart ? host : device, setup.parameters, setup.rotate);
      try {
        body(rank);
      } catch (const Error& error) {
        world->abort(error);
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
}

std::string problem_with(const std::string& checkpoint, const std::vector<Parameter>& parameters,
                         std::uint64_t version) {
  const Found found = look(checkpoint);
  if (found.condition != Condition::complete) return found.problem;
  for (const std::string& problem : verify(checkpoint, 2)) return problem;
  std::vector<Want> wants;
  std::vector<std::vector<std::byte>> memory;
  for (const auto& [state, dtype] : kHeld) {
    for (const Parameter& parameter : parameters) {
      const Piece piece{state, dtype, whole(parameter.name, parameter.rows, parameter.cols)};
      memory.emplace_back(static_cast<std::size_t>(piece.size_bytes()));
      wants.push_back({piece, memory.back().data()});
    }
  }
  load(checkpoint, *found.manifest, wants, {});
  for (std::size_t i = 0; i < wants.size(); ++i) {
    std::vector<std::byte> want(memory[i].size());
    fill(wants[i].piece, version, want.data());
    if (want != memory[i]) {
      return fmt::format("{} of {} has other bits", to_string(wants[i].piece.state), wants[i].piece.slice.name);
    }
  }
  return "";
}

}  // namespace ms::ckpt::testing
