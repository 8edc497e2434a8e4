// SPDX-License-Identifier: GPL-2.0-or-later
// The words of --ms-preflight and of its twin in the environment. A user writes them, so a value is one of these words
// or it is no value: the words handed on to root's programs are always ours, never the user's bytes.
#pragma once

#include <string_view>

namespace ms::spank {

inline constexpr char kOptionName[] = "ms-preflight";
inline constexpr char kTwin[] = "MS_PREFLIGHT";                // at submission, and for ms-diag
inline constexpr char kTwinInProlog[] = "SPANK_MS_PREFLIGHT";  // what spank_job_control_setenv makes of it

inline constexpr std::string_view kPreflightWords[] = {"on", "off",
                                                       "require"};  // ms-diag knows these (slurm/job_env.h)

// One of the words; nullptr, an empty text and Slurm's "(null)" are an option without an argument: "on".
// An empty result: this is no value.
std::string_view preflight_of_option(const char* argument);
// The same, but absence stays absence: nullptr and an empty text are no value.
std::string_view preflight_of_variable(const char* value);

}  // namespace ms::spank
