module gpupack.dev/launcher

go 1.19
