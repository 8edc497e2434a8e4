// A command that outlives the driver: it runs in a process group of its own, writes to files, and its exit status goes
// to another, so that a driver that was killed and came back can go on with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/handle.h"
#include "base/json.h"

namespace ms::driver {

class LongCommand {
 public:
  struct Place {
    int pid = 0;
    std::uint64_t started = 0;  // with the pid: which process it is
    std::string status_file;
  };

  // Starts it with `environment` in place of ours; its standard error goes to `error_file`, where one is given: srun
  // writes its own messages there, and in one file they cut a document in two. Throws Error("driver.start", node).
  static LongCommand start(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
                           const std::string& output_file, const std::string& status_file,
                           const std::string& error_file = "");
  // One that an earlier driver started. It may have ended meanwhile.
  static LongCommand adopt(Place place) { return LongCommand(std::move(place)); }

  const Place& place() const { return place_; }
  bool ended();
  int fd() const { return end_.get(); }  // readable once it has ended
  // After ended(): its exit status, 128 + a signal's number; nullopt where it was killed before it could be written.
  std::optional<int> status() const { return status_; }
  void signal(int number) const;  // to its group

 private:
  explicit LongCommand(Place place);
  Place place_;
  UniqueFd end_;
  bool ended_ = false;
  std::optional<int> status_;
};

// The JSON object that a program printed; nullopt where there is none. Words of a task prolog may stand before it: its
// outer braces have lines of their own.
std::optional<Json> document_in(std::string_view output);

// Our environment with these variables set, and those with an empty value removed.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes);

// The lines that are appended to a file while somebody writes it.
class Tail {
 public:
  Tail(std::string path, std::int64_t offset) : path_(std::move(path)), offset_(offset) {}
  // Returns the whole lines that came since the last call, from at most 256 KiB; a longer line is cut. `last`: includes
  // what has no line end yet, and skips all but the newest 4 MiB of the file; a line says how much was skipped.
  std::vector<std::string> lines(bool last = false);
  std::int64_t offset() const { return offset_; }

 private:
  std::string path_, begun_;
  std::int64_t offset_;
};

}  // namespace ms::driver
