#include "driver/state.h"

#include <fmt/format.h>

#include "base/json.h"

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

}  // namespace ms::driver
