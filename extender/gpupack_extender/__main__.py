# SPDX-License-Identifier: Apache-2.0
"""Entry point of the extender."""

import gc

if __name__ == "__main__":
    # Imports make hundreds of thousands of objects and no garbage: to look for it takes a sixth of
    # their time.
    gc.disable()
    from gpupack_extender.main import main

    main()
