// [recovery], of train/simulate/goodput.h.
#include <fmt/format.h>

#include "train/simulate/goodput.h"

namespace ms::train {
namespace {

void bind_recovery(ConfigSchema& schema, RecoveryConfig& config) {
  schema.section("recovery", "What a recovery takes.", config, kRecoveryFields);
}

}  // namespace

RecoveryConfig load_recovery(const std::vector<std::string>& assignments) {
  RecoveryConfig config;
  ConfigSchema schema;
  bind_recovery(schema, config);
  for (const std::string& assignment : assignments) schema.set(assignment, "--recovery");
  schema.throw_if_problems();
  return config;
}

std::vector<std::pair<std::string, std::string>> recovery_manual() {
  RecoveryConfig config;
  ConfigSchema schema;
  bind_recovery(schema, config);
  std::vector<std::pair<std::string, std::string>> items;
  for (const ConfigRow& row : schema.reference()) {
    items.emplace_back(fmt::format("{}.{}", row.section, row.key),
                       fmt::format("{} Default: {}.", row.doc, row.default_value));
  }
  return items;
}

}  // namespace ms::train
