// The state that a driver leaves in DIR/driver for the one that comes after it, and for the other commands: where it
// listens, and the attempt that runs.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/handle.h"
#include "driver/command.h"

namespace ms::driver {

struct DriverState {
  std::string job;                     // "123.0", with its restart: a state of another one is not ours
  std::string heartbeat;               // the socket of its agents: see AgentOptions
  std::vector<std::string> addresses;  // of the port
  int port = 0;
  int attempt = 0;                 // that runs; 0: none
  std::vector<std::string> nodes;  // its nodes
  std::optional<LongCommand::Place> command = {};
  std::int64_t output_offset = 0;  // of what was passed on
  std::set<std::string> given_back = {};
};

std::string to_json(const DriverState& state);
std::optional<DriverState> read_state(std::string_view text);  // nullopt: not understood

// The files of a driver in a run's directory.
struct DriverFiles {
  explicit DriverFiles(const std::string& run_dir) : dir(run_dir + "/driver") {}
  std::string dir;
  std::string state() const { return dir + "/state.json"; }
  std::string ledger() const { return dir + "/ledger.json"; }
  std::string status() const { return dir + "/status.json"; }
  std::string metrics() const { return dir + "/metrics.prom"; }
  std::string events() const { return dir + "/events"; }
  std::string output(int attempt) const;
  std::string exit_status(int attempt) const;
  std::string evidence(int attempt) const;
  std::string hang(int attempt) const;        // what ms-tracepp hang printed of it, without ".json"
  std::string heartbeats(int attempt) const;  // the status when it hung
};

// Opens the driver's directory in a run's, and makes it if it is missing. What lies there is believed and appended to,
// so both directories must be this user's and the driver's writable by this user only; a link of another user to a
// run's directory is not followed. Throws Error("driver.run_dir", user).
UniqueFd open_driver_directory(const std::string& run_dir);
// The state in such a directory; nullopt: there is none, or it is not understood. Throws Error("driver.run_dir", user).
std::optional<DriverState> stored_state(const UniqueFd& directory);

}  // namespace ms::driver
