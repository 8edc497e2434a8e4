#include "driver/state.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/safe_file.h"

namespace ms::driver {

std::string to_json(const DriverState& state) {
  Json json{{"schema", 1},        {"job", state.job},         {"heartbeat", state.heartbeat},
            {"port", state.port}, {"attempt", state.attempt}, {"output_offset", state.output_offset}};
  json["addresses"] = state.addresses;
  json["nodes"] = state.nodes;
  json["given_back"] = state.given_back;
  if (state.command) {
    json["command"] = Json{
        {"pid", state.command->pid}, {"started", state.command->started}, {"status_file", state.command->status_file}};
  }
  return json.dump(2) + "\n";
}

std::optional<DriverState> read_state(std::string_view text) {
  try {
    const Json json = Json::parse(text, {.max_depth = 8});
    DriverState state;
    json.get_to("job", state.job);
    json.get_to("heartbeat", state.heartbeat);
    json.get_to("port", state.port);
    if (state.port < 0 || state.port > 65535) return std::nullopt;
    json.get_to("attempt", state.attempt);
    json.get_to("output_offset", state.output_offset);
    json.get_to("addresses", state.addresses);
    json.get_to("nodes", state.nodes);
    if (json.contains("given_back")) {
      for (std::string& node : json.get<std::vector<std::string>>("given_back"))
        state.given_back.insert(std::move(node));
    }
    if (const Json* command = json.find("command")) {
      state.command.emplace();
      command->get_to("pid", state.command->pid);
      command->get_to("started", state.command->started);
      command->get_to("status_file", state.command->status_file);
    }
    return state;
  } catch (const JsonError&) { return std::nullopt; }
}

std::string DriverFiles::output(int attempt) const { return fmt::format("{}/attempt-{}.log", dir, attempt); }
std::string DriverFiles::exit_status(int attempt) const { return fmt::format("{}/attempt-{}.status", dir, attempt); }
std::string DriverFiles::evidence(int attempt) const {
  return fmt::format("{}/attempt-{}.evidence.json", dir, attempt);
}
std::string DriverFiles::hang(int attempt) const { return fmt::format("{}/attempt-{}.hang", dir, attempt); }
std::string DriverFiles::heartbeats(int attempt) const {
  return fmt::format("{}/attempt-{}.heartbeats.json", dir, attempt);
}

std::optional<DriverState> stored_state(const UniqueFd& directory) {
  constexpr std::size_t kMost_bytes = std::size_t{64} << 20;
  const std::optional<std::string> text =
      read_at(directory, "state.json", kMost_bytes, {.kind = "driver.run_dir", .blame = Blame::user});
  return text ? read_state(*text) : std::nullopt;
}

UniqueFd open_driver_directory(const std::string& run_dir) {
  const Refusal refusal{.kind = "driver.run_dir", .blame = Blame::user};
  const UniqueFd run = open_run_directory(run_dir, refusal);
  return open_own_directory_at(run, "driver", run_dir + "/driver", 0755, 0022, refusal);
}

}  // namespace ms::driver
