// What a check of flows found, for people and programs. Pure functions of results.
#pragma once

#include <string>

#include "net/check.h"

namespace ms::net {

std::vector<Finding> findings(const FlowsChecked& checked);
std::string as_text(const FlowsChecked& checked);
std::string as_json(const FlowsChecked& checked);

}  // namespace ms::net
