#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>
#include <toml.hpp>
