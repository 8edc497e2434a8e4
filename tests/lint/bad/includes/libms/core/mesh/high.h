#pragma once
#include <gtest/gtest.h>

#include "base/low.h"
#include "mesh/other.h"
#include "tools/ms-train.cpp"
