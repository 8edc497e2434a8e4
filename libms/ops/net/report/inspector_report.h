// inspector_text and inspector_json print what NCCL's Inspector recorded, for people and for programs. Pure.
#pragma once

#include <string>

#include "net/judge/inspector_judge.h"

namespace ms::net {

std::string inspector_text(const InspectorLog& log, const InspectorJudged& judged);
std::string inspector_json(const InspectorLog& log, const InspectorJudged& judged);

}  // namespace ms::net
