// How a token is drawn from the logits of a model. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace ms::train {

struct Sampling {
  double temperature = 1;  // 0: the likeliest token
  double top_p = 1;        // draws among the likeliest tokens that have this probability together
};

// Returns the token that `draw`, in [0,1), falls on. Among equally likely ones the first counts as likelier.
std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, double draw);

}  // namespace ms::train
