// Reports on what NCCL chose, for people and programs. Pure.
#pragma once

#include <string>

#include "net/judge/nccl_choices.h"

namespace ms::net {

std::string nccl_text(const NcclLog& log, const NcclJudged& judged);
std::string nccl_json(const NcclLog& log, const NcclJudged& judged);

}  // namespace ms::net
