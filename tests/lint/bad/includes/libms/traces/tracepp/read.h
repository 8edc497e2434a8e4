#pragma once
#include "base/low.h"
#include "health/check.h"
