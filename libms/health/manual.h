// Texts for people, from the registry and the policy's tables: ms-checks(7), ms-diag.toml(5), and ms-diag explain.
#pragma once

#include <string>
#include <string_view>

namespace ms::health {

std::string checks_page();
std::string policy_page();
std::string explain(std::string_view code);  // Error("check.unknown", user) with the nearest name

}  // namespace ms::health
