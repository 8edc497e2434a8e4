// Texts for people, from the checks and the policy's tables: ms-checks(7), ms-diag.toml(5), a sample of it, and ms-diag
// explain.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "health/checks/check.h"

namespace ms::health {

std::string checks_page(const std::vector<Check>& checks);
std::string policy_page();
std::string health_text();                                            // of ms-diag health
std::vector<std::pair<std::string, std::string>> site_check_terms();  // the contract of paths.checks
std::string sample_policy();                                          // TOML with every key commented out
// Throws Error("check.unknown", user) with the nearest name.
std::string explain(const std::vector<Check>& checks, std::string_view code);

}  // namespace ms::health
