#include "comm/roll_call.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/first_cause.h"

namespace ms::comm {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kHere = "roll here", kLate = "roll late", kFailed = "roll failed", kThrough = "roll through";
// As many ranks look for all others, so that the store is not asked by everybody for everybody; the rest ask them.
constexpr int kCallers = 4;
constexpr milliseconds kAtOnce{0};
constexpr milliseconds kShortPatience{20};
constexpr milliseconds kMeetingPause{2};
constexpr milliseconds kAskEvery{1000};

std::string to_text(const ProcessId& process) {
  std::string text(sizeof process, '\0');
  std::memcpy(text.data(), &process, sizeof process);
  return text;
}

std::optional<ProcessId> process_in(const std::string& text) {
  ProcessId process{};
  if (text.size() != sizeof process) return std::nullopt;
  std::memcpy(&process, text.data(), sizeof process);
  process.host[sizeof process.host - 1] = '\0';
  return process;
}

}  // namespace

RollCall::Calls RollCall::over(PmixStore& store) {
  return {.publish =
              [&store](std::string_view key, const std::string& value) {
                store.put(key, value);
                store.commit();
              },
          .find = [&store](int rank, std::string_view key,
                           milliseconds patience) { return store.find(rank, key, patience); },
          .has_died = [self = this_process()](const ProcessId& process) { return ms::comm::has_died(process, self); }};
}

RollCall::RollCall(int rank, int size, std::vector<int> on_node, milliseconds deadline, Calls calls, Time now)
    : rank_(rank),
      size_(size),
      on_node_(std::move(on_node)),
      deadline_(deadline),
      quiet_(std::min(deadline / 4, kQuiet)),
      calls_(std::move(calls)),
      begin_(now) {
  const ProcessId self = this_process();
  here_[rank] = self;
  calls_.publish(kHere, to_text(self));
}

void RollCall::meet() {
  const auto end = std::chrono::steady_clock::now() + kMeeting;
  for (const int peer : on_node_) {
    while (!look(peer) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kMeetingPause);
  }
}

void RollCall::leave() { calls_.publish(kThrough, "1"); }

// Looks for a rank's process, once; returns whether it is here.
bool RollCall::look(int rank) {
  if (here_.contains(rank)) return true;
  const bool near = std::ranges::find(on_node_, rank) != on_node_.end();
  const milliseconds patience = near ? kAtOnce : kShortPatience;
  const std::optional<std::string> text = calls_.find(rank, kHere, patience);
  const std::optional<ProcessId> process = text ? process_in(*text) : std::nullopt;
  if (process) here_[rank] = *process;
  return process.has_value();
}

std::vector<int> RollCall::without(std::string_view key, milliseconds patience) const {
  std::vector<int> missing;
  const auto end = std::chrono::steady_clock::now() + patience;
  for (int rank = 0; rank < size_; ++rank) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    if (rank != rank_ && !calls_.find(rank, key, std::max(left, kShortPatience))) missing.push_back(rank);
  }
  return missing;
}

void RollCall::fail(const MissingRank& error) {
  calls_.publish(kFailed, error.message());
  throw error;
}

void RollCall::check(Time now) {
  const bool calls = rank_ < kCallers;
  for (const int peer : on_node_) {
    if (peer == rank_ || !look(peer) || !calls_.has_died(here_[peer])) continue;
    const ProcessId& process = here_[peer];
    // A rank that came through may have refused its configuration. It says so itself, and the launcher ends the others.
    const bool through = calls_.find(peer, kThrough, kAtOnce).has_value();
    if (through && !ended_) ended_ = now;
    if (through && now - *ended_ < kPatience) return;
    fail({Error("comm.peer_lost", Blame::peer,
                fmt::format("rank {} (pid {} on {}) {}", peer, process.pid, process.host,
                            through ? "ended right after MPI_Init" : "died before the ranks had joined in MPI_Init"))
              .with_operation("MPI_Init")
              .with_rank(peer),
          process.host});
  }
  if (calls && !all_here_ && now - begin_ >= quiet_) {
    int rank = 0;
    while (rank < size_ && look(rank)) ++rank;
    if (rank == size_) all_here_ = now;
  }
  const auto waited = std::chrono::duration_cast<milliseconds>(now - begin_);
  if (!late_ && waited >= deadline_) {
    late_ = true;
    calls_.publish(kLate, "1");
  }
  const auto missing_error = [&](const std::vector<int>& missing, std::string_view why) {
    const std::string who =
        missing.empty() ? "all ranks wait for each other" : fmt::format("{} {}", rank_list(missing), why);
    const Error error = Error("comm.deadline", Blame::peer,
                              fmt::format("rank {} waited {:.1f} s in MPI_Init; {}", rank_,
                                          std::chrono::duration<double>(now - begin_).count(), who))
                            .with_operation("MPI_Init");
    if (missing.size() != 1) return MissingRank(error, "");
    const auto found = here_.find(missing.front());
    return MissingRank(error.with_rank(missing.front()), found == here_.end() ? "" : found->second.host);
  };
  const milliseconds start_deadline = std::max(deadline_, kStartDeadline);
  const bool asks = calls && all_here_ && now - *all_here_ >= deadline_ && (!next_question_ || now >= *next_question_);
  if (asks) next_question_ = now + kAskEvery;
  const std::vector<int> mute = asks ? without(kLate, kPatience) : std::vector<int>();
  // Where all answer, MPI_Init is only slow: a busy machine takes longer to start than an operation may take.
  if (asks && (!mute.empty() || waited >= start_deadline)) {
    fail(missing_error(mute, mute.size() == 1 ? "does not answer" : "do not answer"));
  }
  if (calls && !all_here_ && waited >= start_deadline) {
    const std::vector<int> absent = without(kHere, kPatience);
    fail(missing_error(absent, absent.size() == 1 ? "has not come" : "have not come"));
  }
  if (calls || !late_) return;
  if (!next_question_ || now >= *next_question_) {
    next_question_ = now + kAskEvery;
    for (int caller = 0; caller < std::min(kCallers, size_); ++caller) {
      if (const auto text = calls_.find(caller, kFailed, kShortPatience)) {
        throw Error("comm.peer_lost", Blame::peer, fmt::format("rank {} stopped: {}", caller, *text))
            .with_operation("MPI_Init");
      }
    }
  }
  if (waited >= start_deadline + 2 * kPatience) {
    throw Error("comm.deadline", Blame::peer,
                fmt::format("rank {} waited {:.1f} s in MPI_Init, and ranks 0 to {} do not report the missing ranks",
                            rank_, std::chrono::duration<double>(waited).count(), kCallers - 1))
        .with_operation("MPI_Init");
  }
}

}  // namespace ms::comm
