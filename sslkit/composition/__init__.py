"""Methods: `"byol+dsa"`, its parts, its terms and their balance."""
