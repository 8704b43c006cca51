"""The architectures localllm runs: one file each, named as `general.architecture` names it."""
