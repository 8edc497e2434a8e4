#include "watch/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace ms::watch {
namespace {

constexpr double kOwnEnd_s = 0.3;  // for ms-diag to say what it has read by then
constexpr double kKillGrace_s = 0.1;
constexpr std::size_t kMostSaid = 300;

}  // namespace

std::string devices_text(std::string_view sample) {
  const Json json = Json::parse(sample, {.max_depth = 6});
  std::string text;
  for (const Json& device : json.at("devices")) {
    std::vector<std::string> values;
    for (const Json::Member& value : device.at("values").items()) {
      if (!value.value.is_number()) continue;
      values.push_back(fmt::format("{} {:.10g}", plain_text(value.key, 60), value.value.get<double>()));
    }
    const std::string name = plain_text(device.get<std::string>("device"), 60);
    text += fmt::format("{}: {}\n", name.empty() ? "host" : name, fmt::join(values, ", "));
  }
  for (const Json& missing : json.at("missing")) {
    text += fmt::format("not read: {}\n", plain_text(missing.get<std::string>(), kMostSaid));
  }
  return text;
}

std::string device_state(const std::string& diag) noexcept {
  try {
    const SubprocessResult said =
        run_subprocess({diag, "collect", "--json", "--deadline", fmt::format("{}s", kDevices_s - kOwnEnd_s)},
                       {.deadline_s = kDevices_s, .kill_grace_s = kKillGrace_s});
    if (said.ok()) return devices_text(said.out);
    return fmt::format("not read: {} collect: {}\n", diag, plain_text(said.describe() + ": " + said.err, kMostSaid));
  } catch (const std::exception& failed) {  // there may be no memory or descriptor left, and the run ends anyway
    return fmt::format("not read: {}\n", failed.what());
  }
}

}  // namespace ms::watch
