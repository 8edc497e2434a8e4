// The thread of a rank that writes what was copied and, on rank 0, commits. It has one job at a time, given by the
// rank's host thread (Saver), which asks whether the job is done and does not wait for it while steps go on. A job that
// fails ends with a problem and never with an exception.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ckpt/directory.h"
#include "ckpt/file_writer.h"

namespace ms::ckpt {

// A rank's contribution to the manifest. It is gathered to rank 0 in a slot of the size that all ranks use.
struct RankEntry {   // of a rank that holds no pieces: empty
  std::string json;  // of its FileEntry
  std::int64_t size_bytes = 0;
};

// A slot begins with two numbers; the text follows, then padding.
struct SlotHead {
  std::int64_t json_bytes = 0, size_bytes = 0;
};

inline void pack(const RankEntry& entry, std::span<std::byte> slot) {
  const SlotHead head{static_cast<std::int64_t>(entry.json.size()), entry.size_bytes};
  MS_ASSERT(sizeof head + entry.json.size() <= slot.size(), "an entry of {} bytes, where {} were enough",
            entry.json.size(), slot.size() - sizeof head);
  std::memcpy(slot.data(), &head, sizeof head);
  std::memcpy(slot.data() + sizeof head, entry.json.data(), entry.json.size());
}

inline RankEntry unpack(std::span<const std::byte> slot) {
  SlotHead head;
  std::memcpy(&head, slot.data(), sizeof head);
  MS_ASSERT(head.json_bytes >= 0 && sizeof head + static_cast<std::size_t>(head.json_bytes) <= slot.size(),
            "an entry of {} bytes in a slot of {}", head.json_bytes, slot.size());
  const std::span<const std::byte> json = slot.subspan(sizeof head, static_cast<std::size_t>(head.json_bytes));
  return {{reinterpret_cast<const char*>(json.data()), json.size()}, head.size_bytes};
}

class SaveWriter {
 public:
  struct Options {
    std::string dir;
    int rank = 0;
    std::int64_t keep_last = 0, keep_every = 0;
    std::int64_t resumed_from = -1;  // step; -1: none
  };
  // The outcome of a save so far.
  struct Result {
    bool failed = false;
    std::string problem;  // what it was
    RankEntry entry;
    double write_s = 0, cpu_s = 0;
    std::chrono::steady_clock::time_point ended;  // of the last job
    std::vector<std::string> set_aside, pruned;
  };

  // `image`: as FileWriter wants it; empty where there are no pieces. The first job, touching its pages and making the
  // skeleton, begins at once.
  SaveWriter(Options options, std::vector<Piece> pieces, std::span<std::byte> image);

  // Waits for the skeleton, which is tried once more where it has failed. nullptr: there are no pieces, or it failed
  // again, and then so does the next write().
  const FileWriter* file();

  // Posts the jobs of a save: write() waits until all is copied and writes this rank's file; commit() or abandon()
  // follows on rank 0. An error from the wait (a poisoned stream) is a problem like any other; nobody asks for it,
  // because the run has failed.
  void write(std::int64_t step, std::function<void()> await_copied);
  void commit(Manifest manifest, std::function<std::vector<RankEntry>()> entries);  // which may wait for a stream
  void abandon(std::int64_t step);

  bool busy() const;
  void wait_for(std::chrono::milliseconds at_most) const;
  // Returns the outcome of the save that write() began; only while not busy.
  const Result& result() const;

 private:
  using Job = std::function<void(const std::stop_token&)>;
  void post(Job job);
  void run(const std::stop_token& stop);
  void make_skeleton();
  void write_file(std::int64_t step, const std::stop_token& stop);
  void check_and_commit(const Manifest& manifest, const std::vector<RankEntry>& entries);
  void prune();
  void fail(const Error& error);
  std::string directory(std::int64_t step) const;

  const Options options_;
  const Directory dir_;
  const std::vector<Piece> pieces_;
  const std::span<std::byte> image_;

  // The job's while busy, the host thread's otherwise.
  std::optional<FileWriter> file_;
  std::optional<Error> skeleton_failure_;
  Result result_;
  std::optional<std::int64_t> first_committed_;  // by this run

  mutable std::mutex mutex_;  // guards job_, busy_
  mutable std::condition_variable_any changed_;
  Job job_;
  bool busy_ = false;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace ms::ckpt
